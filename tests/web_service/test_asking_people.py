"""Approvals by web hook: whoever must decide is asked until they have heard it, and what they decide counts once."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from service.client import RefusedError
from service.hooks import SignatureError, check_signature, signature, signed

from tests.helpers.books import done
from tests.helpers.processes import wait_until
from tests.web_service.conftest import PATIENCE_S, Service, client, is_status

SECRET = "both sides know it"


class Desk:
    """Somebody who is asked by web hook, and hears nothing of the first requests."""

    def __init__(self, deaf_count: int = 0) -> None:
        self.heard: list[tuple[dict[str, str], bytes]] = []
        self.deaf_count = deaf_count

    def take(self, headers: dict[str, str], body: bytes) -> int:
        if self.deaf_count:
            self.deaf_count -= 1
            return 500
        self.heard.append((headers, body))
        return 204


@contextmanager
def served(desk: Desk) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            self.send_response(desk.take({name.lower(): value for name, value in self.headers.items()}, body))
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/asked"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_whoever_must_decide_is_told_once_and_decides_once(service: Service):
    """The first request fails; the decision comes twice, at two workers at once."""
    desk = Desk(deaf_count=1)
    with served(desk) as url:
        hooked = {"hook_url": url, "hook_secret": SECRET}
        one, other = service.worker(**hooked), service.worker(**hooked)
        client(one).say("ada", "a ask1 b", "m1")
        wait_until(lambda: desk.heard, PATIENCE_S)
        headers, body = desk.heard[0]
        check_signature(SECRET, headers, body)
        about = json.loads(body)
        assert (about["run"], about["conversation"], about["call"]) == ("m1", "ada", "ask1")
        decision = {"run": "m1", "call": "ask1", "approve": True, "arguments": about["arguments"], "by": "ann"}

        def decide(worker: Any, **changed: Any) -> Any:
            said = decision | changed
            return client(worker).post(about["decide"], said, signed(SECRET, "d1", json.dumps(said).encode()))

        for unsigned in ({}, {"webhook-signature": "v1,bm9uc2Vuc2U="}):
            with pytest.raises(RefusedError) as caught:
                client(one).post(about["decide"], decision, unsigned)
            assert caught.value.status == 401
        with pytest.raises(RefusedError) as caught:
            decide(one, arguments='{"euros": 5}')
        assert caught.value.status == 409
        with ThreadPoolExecutor(4) as threads:
            told = list(threads.map(decide, (one, other, one, other)))
        assert {answer["run"] for answer in told} == {"m1"}
        ended = is_status(client(other), "m1", "done")
        assert ended["output"] == "; ".join(done(call) for call in ("a", "ask1", "b"))
        assert decide(other)["status"] == "done"
        with pytest.raises(RefusedError) as caught:
            decide(one, approve=False)
        assert caught.value.status == 409
        # A worker that starts now finds the note that this call was told: it asks about the next, and not again.
        client(service.worker(**hooked)).say("ada", "ask2", "m2")
        wait_until(lambda: len(desk.heard) > 1, PATIENCE_S)
    assert [json.loads(body)["call"] for _, body in desk.heard] == ["ask1", "ask2"]
    assert service.book == ["a", "ask1", "b"]


def test_a_signed_decision_counts_for_the_run_that_it_names_and_for_no_other(service: Service):
    """What is signed is the body. Two conversations may have calls of one id, with the same arguments."""
    worker = service.worker(hook_secret=SECRET)
    for number in (1, 2):
        client(worker).say(f"talk{number}", "ask1", f"m{number}")
        is_status(client(worker), f"m{number}", "paused")
    approval: dict[str, Any] = {"run": "m1", "call": "ask1", "approve": True, "arguments": "{}", "by": "ann"}
    without_a_run = {name: value for name, value in approval.items() if name != "run"}
    for said, path in ((approval, "/runs/m2/decisions"), (without_a_run, "/runs/m2/decisions")):
        with pytest.raises(RefusedError) as caught:
            client(worker).post(path, said, signed(SECRET, "d1", json.dumps(said).encode()))
        assert caught.value.status == 401
    client(worker).post("/runs/m1/decisions", approval, signed(SECRET, "d1", json.dumps(approval).encode()))
    is_status(client(worker), "m1", "done")
    assert client(worker).get("/runs/m2")["status"] == "paused"
    assert service.book == ["ask1"]


def test_a_call_that_waited_when_its_worker_was_killed_is_told_by_another(service: Service):
    client(victim := service.worker()).say("ada", "ask1", "m1")
    is_status(client(victim), "m1", "paused")
    victim.kill()
    desk = Desk()
    with served(desk) as url:
        worker = service.worker(hook_url=url)
        wait_until(lambda: desk.heard, PATIENCE_S)
        decision = {"call": "ask1", "approve": False, "arguments": "{}", "by": "ann", "reason": "too much"}
        client(worker).post("/runs/m1/decisions", decision)
        assert is_status(client(worker), "m1", "done")["output"] == "too much"
    assert service.book == []


def test_a_signature_is_that_of_standard_webhooks():
    """The example of their specification's libraries, with a secret in their form."""
    secret, body = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", b'{"test": 2432232314}'
    made = signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", body)
    assert made == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    headers = signed(SECRET, "id", body)
    check_signature(SECRET, headers | {"webhook-signature": f"v1,b3RoZXI= {headers['webhook-signature']}"}, body)
    for wrong in ({"webhook-id": "other"}, {"webhook-timestamp": "1614265330"}, {"webhook-timestamp": "soon"}):
        with pytest.raises(SignatureError):
            check_signature(SECRET, headers | wrong, body)
    with pytest.raises(SignatureError):
        check_signature(SECRET, headers, body + b" ")
