"""Who may ask the inspector: every way in which a foreign page got into pages of this kind elsewhere is refused."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from standfast.cli.entry import main
from tests.inspector.serving import Served, fill, inspector

READS = ["/", "/inspector.js", "/api/store", "/api/sessions", "/api/items?session=long", "/api/search?q=x"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("store") / "talks.db"
    asyncio.run(fill(path))
    with inspector(path, "--write") as found:
        yield found


@pytest.mark.parametrize("path", READS)
def test_nothing_is_shown_without_the_token_not_even_the_page(served: Served, path: str) -> None:
    assert served.ask(path, token=False).status == 401
    assert served.ask(path, token=False, Authorization="Bearer wrong").status == 401
    assert served.ask(path, token=False, Authorization=f"Basic {served.token}").status == 401
    assert served.ask(path, token=False, Cookie="standfast_inspector=wrong").status == 401
    assert served.ask(path).status == 200


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


def test_the_token_is_exchanged_for_a_cookie_that_scripts_and_other_sites_do_not_get(served: Served) -> None:
    entered = served.ask(f"/enter?token={served.token}", token=False)
    assert (entered.status, entered.headers["location"]) == (303, "/")
    cookie = entered.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert served.token not in cookie
    assert served.ask("/api/store", token=False, Cookie=cookie.partition(";")[0]).status == 200
    assert served.ask("/enter?token=wrong", token=False).status == 401
    assert served.ask("/enter", token=False).status == 401


def test_what_changes_something_must_be_json_with_our_header(served: Served) -> None:
    body = '{"run":"run-7","call":"call-1","approve":true,"arguments":"x"}'
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        assert served.ask("/api/decide", method="POST", body=body, Content_Type=kind, X_Standfast="1").status == 415
    assert served.ask("/api/decide", method="POST", body=body, X_Standfast="1").status == 415
    assert served.ask("/api/decide", method="POST", body=body, Content_Type="application/json").status == 403
    assert served.ask("/api/decide").status == 405


def test_every_answer_forbids_frames_foreign_scripts_and_keeping(served: Served) -> None:
    for answer in (served.ask("/"), served.ask("/api/store"), served.ask("/", token=False), served.ask("/nowhere")):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"


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
    short.write_text("short")
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
