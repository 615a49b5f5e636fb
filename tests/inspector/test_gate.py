"""Who may ask the inspector: every way in which a foreign page got into pages of this kind elsewhere is refused."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from standfast._kits.cli.entry import main
from standfast._kits.inspector.access_control import Rules, our_hosts
from standfast._kits.inspector.app import make_app
from tests.inspector.serving import Served, fill, inspector

PAGE = ["/", "/inspector.js", "/inspector.css"]
DATA = [
    "/api/store",
    "/api/sessions",
    "/api/items?session=long",
    "/api/search?q=x",
    "/api/events?session=long",
    "/none",
]
READS = [*PAGE, *DATA[:4]]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("store") / "talks.db"
    asyncio.run(fill(path))
    with inspector(path, "--write") as found:
        yield found


@pytest.mark.parametrize("path", DATA)
def test_nothing_of_a_store_is_shown_without_the_token(served: Served, path: str) -> None:
    assert served.ask(path, token=False).status == 401
    assert served.ask(path, token=False, Authorization="Bearer wrong").status == 401
    assert served.ask(path, token=False, Authorization=f"Basic {served.token}").status == 401
    assert served.ask(path, token=False, Cookie=f"standfast_inspector={served.token}").status == 401
    assert served.ask(f"{path}{'&' if '?' in path else '?'}token={served.token}", token=False).status == 401


def test_the_page_itself_is_the_same_for_everybody_and_no_cookie_is_set(served: Served) -> None:
    """A browser sends no header when it opens an address; cookies it would give to every server of this computer."""
    for path in PAGE:
        without, with_token = served.ask(path, token=False), served.ask(path)
        assert (without.status, without.body) == (200, with_token.body)
        assert served.token not in without.body
    for path in (*READS, "/enter?token=x", "/none"):
        assert "set-cookie" not in served.ask(path).headers


@pytest.mark.parametrize("path", READS)
def test_a_foreign_host_name_is_refused_on_reads_too(served: Served, path: str) -> None:
    """A name that was pointed at this computer: the browser believes it is the attacker's own page."""
    port = served.host.rpartition(":")[2]
    for host in ("attacker.example", f"attacker.example:{port}", "127.0.0.1", f"127.0.0.1.attacker.example:{port}", ""):
        assert served.ask(path, Host=host).status == 403
    assert served.ask(path, Host=f"LOCALHOST:{port}").status == 200


@pytest.mark.parametrize("origin", ["http://attacker.example", "null", "https://127.0.0.1", "file://", ""])
def test_a_page_of_another_origin_is_refused(served: Served, origin: str) -> None:
    assert served.ask("/api/sessions", Origin=origin).status == 403
    assert served.post("/api/undo", {}, Origin=origin).status == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_request_that_the_browser_says_is_of_another_site_is_refused(served: Served, site: str) -> None:
    assert served.ask("/api/sessions", Sec_Fetch_Site=site).status == 403
    assert served.ask("/", Sec_Fetch_Site=site).status == 403
    assert served.ask("/", Sec_Fetch_Site="none").status == 200


def test_what_changes_something_must_be_json_with_our_header(served: Served) -> None:
    body = '{"run":"run-7","call":"call-1","approve":true,"arguments":"x"}'
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        assert served.ask("/api/decide", method="POST", body=body, Content_Type=kind, X_Standfast="1").status == 415
    assert served.ask("/api/decide", method="POST", body=body, X_Standfast="1").status == 415
    assert served.ask("/api/decide", method="POST", body=body, Content_Type="application/json").status == 403
    assert served.ask("/api/decide").status == 405


def test_every_answer_forbids_frames_foreign_scripts_and_keeping(served: Served) -> None:
    """Errors too, and those that nobody has thought of: they were answered outside of the gate."""
    sent = {"Content_Type": "application/json", "X_Standfast": "1"}
    answers = {
        "page": served.ask("/"),
        "data": served.ask("/api/store"),
        "no token": served.ask("/api/store", token=False),
        "nowhere": served.ask("/nowhere"),
        "another method": served.ask("/api/decide"),
        "foreign host": served.ask("/", Host="attacker.example"),
        "a number of 5,000 digits": served.ask(f"/api/items?session=long&limit={'1' * 5000}"),
        "a body of 90,000 brackets": served.ask("/api/decide", method="POST", body="[" * 90_000, **sent),
        "text that is no UTF-8": served.ask("/api/items?session=%ff%fe"),
    }
    assert [name for name, answer in answers.items() if answer.status >= 500] == []
    for name, answer in answers.items():
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy, name
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"


async def test_a_defect_is_answered_in_words_with_the_same_headers() -> None:
    class Broken:
        """A store with a defect."""

        read_only = False

        def __getattr__(self, name: str) -> object:
            raise ZeroDivisionError(name)

    rules = Rules("t" * 32, our_hosts(80))
    app = make_app(Broken(), rules)  # type: ignore[arg-type]
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:80") as client:
        headers = {"Authorization": f"Bearer {rules.token}", "Host": "127.0.0.1:80"}
        answer = await client.get("/api/sessions", headers=headers)
    assert (answer.status_code, "defect" in answer.json()["what"]) == (500, True)
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


def test_without_write_nothing_can_be_changed(tmp_path: Path) -> None:
    path = tmp_path / "talks.db"
    asyncio.run(fill(path))
    with inspector(path) as served:
        answer = served.post("/api/undo", {"session": "compacted", "generation": "x"})
        assert answer.status == 403
        assert "--write" in answer.body
        assert served.ask("/api/store").json()["writes"] is False


def test_an_address_that_others_can_reach_needs_a_token_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "talks.db"
    asyncio.run(fill(path))
    assert main(["inspect", str(path), "--host", "0.0.0.0", "--port", "0"]) == 2
    assert "--token-file" in capsys.readouterr().err
    short = tmp_path / "token"
    for token in ("short", "a token of several words", "ein Schlüssel mit Umlauten"):
        short.write_text(token)
        assert main(["inspect", str(path), "--host", "0.0.0.0", "--port", "0", "--token-file", str(short)]) == 2


def test_a_port_in_use_and_a_store_that_is_not_there_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "talks.db"
    asyncio.run(fill(path))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert main(["inspect", str(path), "--port", str(taken.getsockname()[1])]) == 5
    assert "Choose another --port" in capsys.readouterr().err
    assert main(["inspect", str(tmp_path / "none.db"), "--port", "0"]) == 4
