"""Approvals by web hook: whoever must decide is asked until they have heard it, and what they decide counts once."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from service.client import Client, RefusedError
from service.hooks import Address, Hooks, SignatureError, check_signature, signature, signed

from standfast import Agent, InvalidSettingError, RunConfig, Runner, SQLiteSession, function_tool, open_store
from standfast.testing import ScriptedModel, function_call
from tests.helpers import servers
from tests.helpers.ledger_oracle import done
from tests.helpers.processes import wait_until
from tests.web_service.conftest import PATIENCE_S, Service, client, is_status, started

SECRET = "both sides know it"


class Desk:
    """Somebody who is asked by web hook, and refuses the first requests with these statuses."""

    def __init__(self, *refusals: int) -> None:
        self.heard: list[tuple[dict[str, str], bytes]] = []
        self.paths: list[str] = []
        self.refusals = list(refusals)

    def take(self, path: str, headers: dict[str, str], body: bytes) -> int:
        self.paths.append(path)
        if self.refusals:
            return self.refusals.pop(0)
        self.heard.append((headers, body))
        return 204


@contextmanager
def served(desk: Desk) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            self.send_response(desk.take(self.path, headers, body))
            self.send_header("location", "/elsewhere")
            self.end_headers()

        def do_GET(self) -> None:  # what a redirect makes of a POST
            self.send_response(desk.take(self.path, {}, b""))
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
    desk = Desk(500)
    with served(desk) as url:
        hooked = {"hook_url": url, "hook_secret": SECRET}
        one, other = service.worker(**hooked), service.worker(**hooked)
        client(one).say("ada", "a ask1 b", "m1")
        wait_until(lambda: desk.heard, PATIENCE_S)
        headers, body = desk.heard[0]
        check_signature(SECRET, headers, body)
        about = json.loads(body)
        assert (about["run"], about["conversation"], about["call"]) == ("m1", "ada", "ask1")
        decision = {"type": "call.decided", "run": "m1", "call": "ask1", "approve": True, "by": "ann"}
        decision["arguments"] = about["arguments"]

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
    approval: dict[str, Any] = {"type": "call.decided", "run": "m1", "call": "ask1", "approve": True, "by": "ann"}
    approval["arguments"] = "{}"
    without_a_run, without_a_type = (
        {key: approval[key] for key in approval if key != left} for left in ("run", "type")
    )
    wrong = ((approval, "/runs/m2/decisions"), (without_a_run, "/runs/m2/decisions"))
    for said, path in (*wrong, (without_a_type, "/runs/m1/decisions")):
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


def test_the_question_sent_back_is_not_a_decision(service: Service):
    """Both directions are signed with one secret."""
    desk = Desk()
    with served(desk) as url:
        worker = service.worker(hook_url=url, hook_secret=SECRET)
        client(worker).say("ada", "ask1", "m1")
        wait_until(lambda: desk.heard, PATIENCE_S)
    _, body = desk.heard[0]
    said = json.loads(body) | {"approve": True, "by": "eve"}
    with pytest.raises(RefusedError) as caught:
        client(worker).post("/runs/m1/decisions", said, signed(SECRET, "d1", json.dumps(said).encode()))
    assert caught.value.status == 422
    assert service.book == []


def test_no_secret_of_the_hooks_address_is_logged_or_sent_elsewhere(tmp_path: Path):
    desk = Desk(302)
    with served(desk) as url:
        hook = url.replace("http://", "http://ann:pass%20word@") + "?key=hidden"
        port = str(servers.free_port())
        with started(
            tmp_path, "--port", port, SERVICE_TOKEN="t", SERVICE_HOOK_URL=hook, SERVICE_TEND_S="0.1"
        ) as process:
            asked = Client(f"http://127.0.0.1:{port}", token="t", patience_s=PATIENCE_S)
            asked.say("ada", "Please pay.", "m1")
            wait_until(lambda: desk.heard, PATIENCE_S)
            process.terminate()
            _, logged = process.communicate(timeout=PATIENCE_S)
    assert desk.paths == ["/asked?key=hidden"] * 2  # not followed, and sent again
    assert desk.heard[0][0]["authorization"] == "Basic " + base64.b64encode(b"ann:pass word").decode()
    assert "did not take that call" in logged
    assert "HTTP 302" in logged
    for secret in ("hidden", "pass", "ann"):
        assert secret not in logged.replace(str(tmp_path), "")


async def test_a_call_id_that_no_header_can_hold_keeps_no_call_from_being_asked_about(tmp_path: Path):
    """Models choose the ids of calls: one with a line end raised in every pass, before others were asked about."""
    ids = ["ok1", "c\r\nX-Forged: y", "c\u2028é", "\u202e", "\ud800", "\0", "x" * 3000, "ok2"]

    @function_tool(needs_approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    for number, call_id in enumerate(ids):
        model = ScriptedModel([[function_call("pay", {}, call_id=call_id)]])
        session = SQLiteSession(f"s{number}", tmp_path / "talks.db")
        config = RunConfig(run_id=f"m{number}")
        await Runner.run(Agent(name="Clerk", tools=[pay], model=model), "Pay.", session=session, run_config=config)
    desk = Desk()
    async with open_store(tmp_path / "talks.db") as store:
        with served(desk) as url:
            for _ in range(2):
                hooks = Hooks(store, url, SECRET)
                await hooks.tell()
                await hooks.close()
    for headers, body in desk.heard:
        check_signature(SECRET, headers, body)
        assert "x-forged" not in headers
    asked = sorted((json.loads(body)["run"], json.loads(body)["call"]) for _, body in desk.heard)
    assert asked == [(f"m{number}", call_id) for number, call_id in enumerate(ids)]
    assert len({headers["webhook-id"] for headers, _ in desk.heard}) == len(ids)


async def test_a_run_id_that_no_header_can_hold_keeps_no_call_from_being_asked_about(tmp_path: Path):
    """Other programs with this store choose ids, too: one that is not Latin-1 raised in every pass."""
    ids = ["m1", "\u0436", "m\r\nX-Forged: y", "\xe9", "n" * 3000, "m2"]

    @function_tool(needs_approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    for number, run_id in enumerate(ids):
        model = ScriptedModel([[function_call("pay", {}, call_id="c")]])
        session, config = SQLiteSession(f"s{number}", tmp_path / "talks.db"), RunConfig(run_id=run_id)
        await Runner.run(Agent(name="Clerk", tools=[pay], model=model), "Pay.", session=session, run_config=config)
    desk = Desk()
    async with open_store(tmp_path / "talks.db") as store:
        with served(desk) as url:
            for _ in range(2):
                hooks = Hooks(store, url, SECRET)
                await hooks.tell()
                await hooks.close()
    for headers, body in desk.heard:
        check_signature(SECRET, headers, body)
        assert "x-forged" not in headers
    assert sorted(json.loads(body)["run"] for _, body in desk.heard) == sorted(ids)
    assert len({headers["webhook-id"] for headers, _ in desk.heard}) == len(ids)


@pytest.mark.parametrize("url", ["ftp://ann:hidden@host/", "ann:hidden@host", "http://:hidden@/", "http:///hidden"])
def test_an_address_that_is_none_is_refused_without_being_quoted(url: str):
    with pytest.raises(InvalidSettingError, match="SERVICE_HOOK_URL") as caught:
        Address(url)
    assert "hidden" not in str(caught.value)


def test_a_signature_is_that_of_standard_webhooks():
    """The example of their specification's libraries, with a secret in their form."""
    secret, body = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", b'{"test": 2432232314}'
    made = signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", body)
    assert made == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    headers = signed(SECRET, "id", body)
    check_signature(SECRET, headers | {"webhook-signature": f"v1,b3RoZXI= {headers['webhook-signature']}"}, body)
    times = ("1614265330", "soon", "1" * 5000)  # Python refuses to make a number of 5,000 digits
    for wrong in ({"webhook-id": "other"}, *({"webhook-timestamp": one} for one in times)):
        with pytest.raises(SignatureError):
            check_signature(SECRET, headers | wrong, body)
    with pytest.raises(SignatureError):
        check_signature(SECRET, headers, body + b" ")
