"""An MCP server over HTTP, written by hand, that fails as the name of a tool says: `faulty_server.py PORT`.

It speaks the older protocol, with sessions: streamable HTTP at `/mcp`, and the transport before that at `/sse`. What
its tools do outside is lines in the file that `OFFICE_NOTES` names: the tool, and the key of the call. `OFFICE_MODE`
says how it refuses a session that it does not know. When it dies it comes back, on the same port, without its sessions.
"""

from __future__ import annotations

import ctypes
import json
import os
import queue
import signal
import socketserver
import sys
import time
import uuid
import zlib
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
NOTES = Path(os.environ["OFFICE_NOTES"])
MODE = os.environ.get("OFFICE_MODE", "")
SLOW_S = float(os.environ.get("OFFICE_SLOW_S", "600"))

SESSIONS: set[str] = set()
STREAMS: dict[str, queue.Queue[Any]] = {}
FORGOT: set[str] = set()
LATER: dict[str, Any] = {}
"""Answers that wait to be fetched behind an event id."""

UNKNOWN_SESSION: dict[str, tuple[int, Any]] = {
    "": (404, {"code": -32600, "message": "Session not found"}),  # the official server in Python
    "typescript": (404, {"code": -32001, "message": "Session not found"}),  # the official one in TypeScript
    "example": (400, {"code": -32000, "message": "Bad Request: No valid session ID provided"}),  # its examples
    "plain": (404, None),
}

FAULTS = (
    "look",
    "die",
    "hang",
    "refuse",
    "cut",
    "cut_body",
    "cut_stream",
    "fetched_later",
    "never_fetched",
    "status_500",
    "status_502",
    "status_504",
    "json_500",
    "endless_500",
    "endless",
    "endless_too",
    "endless_packed",
    "endless_event",
    "large_event",
    "status_429",
    "accepted",
    "page",
    "garbage",
    "garbage_event",
    "twice",
    "bad_shape",
    "bad_schema",
    "slow",
    "wrong_id",
    "forgets_before",
    "forgets_after",
    "dies_after",
)


def effect(line: str) -> None:
    with NOTES.open("a", encoding="utf-8") as notes:
        notes.write(line + "\n")


def listed() -> list[dict[str, Any]]:
    schema = {"type": "object", "properties": {}}
    tools: list[dict[str, Any]] = [{"name": name, "description": name, "inputSchema": schema} for name in FAULTS]
    for tool in tools:
        if tool["name"] == "bad_schema":
            tool["outputSchema"] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    return tools


def answer(request: dict[str, Any]) -> dict[str, Any]:
    match request["method"]:
        case "initialize":
            return {
                "protocolVersion": request["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "faulty", "version": "1"},
            }
        case "tools/list":
            return {"tools": listed()}
        case "tools/call":
            return called(request["params"])
        case "ping":
            return {}
        case _:
            raise LookupError(request["method"])


def key_of(params: dict[str, Any]) -> str:
    return str((params.get("_meta") or {}).get("standfast/idempotency-key"))


def called(params: dict[str, Any]) -> dict[str, Any]:
    name = params["name"]
    if name == "refuse":
        raise LookupError("refused")
    if name == "bad_shape":
        return {"content": 7}
    content = [{"type": "text", "text": f"{key_of(params).rpartition(':')[2]} done"}]
    return {"content": content, "structuredContent": {"n": "seven"}} if name == "bad_schema" else {"content": content}


def reply_to(request: dict[str, Any]) -> dict[str, Any]:
    reply: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
    try:
        return reply | {"result": answer(request)}
    except LookupError as error:
        return reply | {"error": {"code": -32010 if "refused" in str(error) else -32601, "message": str(error)}}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *about: Any) -> None:
        pass

    # --- what is asked -----------------------------------------------------------------------------------------------

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path.startswith("/messages"):
            self.take(request)
            return
        session = self.headers.get("mcp-session-id")
        if session is not None and session not in SESSIONS:
            self.unknown_session()
        elif "id" not in request or "method" not in request:
            self.send(202, "text/plain", b"")
        elif request["method"] == "initialize":
            session = uuid.uuid4().hex
            SESSIONS.add(session)
            self.send_json(200, reply_to(request), session)
        elif session is None:
            self.send_json(400, {"jsonrpc": "2.0", "id": None, "error": {"code": -32601, "message": "no session"}})
        elif request["method"] == "tools/call":
            self.call(request, session)
        else:
            self.send_json(200, reply_to(request))

    def do_GET(self) -> None:
        if self.path == "/sse":
            self.old_stream()
            return
        found = LATER.pop(self.headers.get("last-event-id", ""), None)
        if found is None:
            self.send(405, "text/plain", b"")
        else:
            self.send(200, "text/event-stream", b"data: " + json.dumps(found).encode() + b"\n\n")

    def do_DELETE(self) -> None:
        if MODE == "slow end":
            time.sleep(SLOW_S)
        SESSIONS.discard(self.headers.get("mcp-session-id", ""))
        self.send(200, "text/plain", b"")

    # --- a call, and how it fails ------------------------------------------------------------------------------------

    def call(self, request: dict[str, Any], session: str) -> None:
        name = request["params"]["name"]
        if name == "forgets_before" and key_of(request["params"]) not in FORGOT:
            FORGOT.add(key_of(request["params"]))
            SESSIONS.clear()
            self.unknown_session()
            return
        if name == "status_429":
            self.send(429, "text/html", b"slowly")
            return
        effect(f"{name} {key_of(request['params'])}")
        reply = reply_to(request)
        match name:
            case "die":
                os._exit(3)
            case "hang":
                time.sleep(600)
            case "slow":
                time.sleep(SLOW_S)
                self.send_json(200, reply)
            case "cut":
                self.cut()
            case "cut_body":
                self.head(200, "application/json", 500)
                self.wfile.write(json.dumps(reply).encode()[:20])
                self.cut()
            case "cut_stream":
                self.head(200, "text/event-stream", None)
                self.wfile.write(b": so far\n\n")
                self.cut()
            case "fetched_later" | "never_fetched":
                place = uuid.uuid4().hex
                if name == "fetched_later":
                    LATER[place] = reply
                self.send(200, "text/event-stream", f"id: {place}\nretry: 10\ndata:\n\n".encode())
            case "status_500" | "status_502" | "status_504":
                self.send(int(name[-3:]), "text/html", b"<html>Bad gateway</html>")
            case "endless_500":
                self.head(500, "application/json", None)
                while True:
                    self.wfile.write(b"x" * 65536)
            case "endless" | "endless_too":
                self.head(200, "application/json", None)
                while True:
                    self.wfile.write(b" " * 65536)
            case "endless_packed":
                self.head(200, "application/json", None, encoding="gzip")
                packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
                while True:
                    self.wfile.write(packer.compress(bytes(1024 * 1024)) + packer.flush(zlib.Z_SYNC_FLUSH))
            case "endless_event":
                self.head(200, "text/event-stream", None)
                self.wfile.write(b"data: ")
                while True:
                    self.wfile.write(b" " * 65536)
            case "large_event":
                reply["result"]["content"][0]["text"] = "x" * 2 * 1024 * 1024
                self.send(200, "text/event-stream", b"data: " + json.dumps(reply).encode() + b"\n\n")
            case "json_500":
                self.send(500, "application/json", b'{"detail": "Internal Server Error"}')
            case "accepted":
                self.send(202, "text/plain", b"")
            case "page":
                self.send(200, "text/html", b"<html>Hello</html>")
            case "garbage":
                self.send(200, "application/json", b"{{{{")
            case "garbage_event":
                self.send(200, "text/event-stream", b"event: message\ndata: {{{{\n\n")
            case "twice":
                line = b"event: message\ndata: " + json.dumps(reply).encode() + b"\n\n"
                self.send(200, "text/event-stream", line * 2)
            case "wrong_id":
                self.send_json(200, reply | {"id": 999_999})
            case "forgets_after":
                SESSIONS.clear()
                self.send_json(200, reply)
            case "dies_after":
                self.send_json(200, reply)
                self.wfile.flush()
                os._exit(3)
            case _:
                self.send_json(200, reply)

    def unknown_session(self) -> None:
        status, error = UNKNOWN_SESSION.get(MODE, UNKNOWN_SESSION[""])
        if error is None:
            self.send(status, "text/plain", b"Not Found")
        else:
            self.send_json(status, {"jsonrpc": "2.0", "id": None, "error": error})

    # --- the older transport -----------------------------------------------------------------------------------------

    def old_stream(self) -> None:
        session = uuid.uuid4().hex
        said = STREAMS[session] = queue.Queue()
        self.head(200, "text/event-stream", None)
        self.wfile.write(f"event: endpoint\ndata: /messages?{session}\n\n".encode())
        while (line := said.get()) is not None:
            self.wfile.write(
                line if isinstance(line, bytes) else f"event: message\ndata: {json.dumps(line)}\n\n".encode()
            )
        self.cut()

    def take(self, request: dict[str, Any]) -> None:
        said = STREAMS.get(self.path.partition("?")[2])
        name = (request.get("params") or {}).get("name", "") if request.get("method") == "tools/call" else ""
        if said is None:
            self.unknown_session()
            return
        if name == "status_429":
            self.send(429, "text/html", b"slowly")
            return
        if name:
            effect(f"{name} {key_of(request['params'])}")
        if name.startswith("status_") or name == "json_500":
            self.send(int(name[-3:]), "text/html", b"<html>Bad gateway</html>")
            return
        if name == "cut":
            self.cut()
            return
        self.send(202, "text/plain", b"")
        if "id" not in request or "method" not in request:
            return
        reply = reply_to(request)
        match name:
            case "die" | "dies_after":
                os._exit(3)
            case "hang":
                time.sleep(600)
            case "slow":
                time.sleep(SLOW_S)
                said.put(reply)
            case "cut_body" | "cut_stream":
                said.put(f"event: message\ndata: {json.dumps(reply)}".encode()[:40])
                said.put(None)
            case "garbage" | "garbage_event":
                said.put(b"event: message\ndata: {{{{\n\n")
            case "twice":
                said.put(reply)
                said.put(reply)
            case "wrong_id":
                said.put(reply | {"id": 999_999})
            case "forgets_after":
                said.put(reply)
                STREAMS.clear()
            case _:
                said.put(reply)

    # --- answers -----------------------------------------------------------------------------------------------------

    def send_json(self, status: int, said: Any, session: str | None = None) -> None:
        self.send(status, "application/json", json.dumps(said).encode(), session)

    def send(self, status: int, kind: str, body: bytes, session: str | None = None) -> None:
        self.head(status, kind, len(body), session)
        self.wfile.write(body)
        self.wfile.flush()

    def head(
        self, status: int, kind: str, length: int | None, session: str | None = None, encoding: str | None = None
    ) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        if length is not None:
            self.send_header("content-length", str(length))
        if session is not None:
            self.send_header("mcp-session-id", session)
        if encoding is not None:
            self.send_header("content-encoding", encoding)
        self.end_headers()
        self.close_connection = length is None

    def cut(self) -> None:
        self.wfile.flush()
        self.close_connection = True
        self.connection.close()


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that went away


def main() -> None:
    """Serve in a child, and in another one when that has died: whoever connects meanwhile waits."""
    with Server(("127.0.0.1", int(sys.argv[1])), Handler) as server:
        print(server.server_address[1], flush=True)
        while True:
            if os.fork() == 0:
                ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                server.serve_forever()
            os.wait()


if __name__ == "__main__":
    main()
