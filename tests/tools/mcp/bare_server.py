"""An MCP server written by hand, so that it starts at once and can misbehave: `bare_server.py MODE`.

It speaks the older protocol over its standard streams and imports nothing but the standard library.
What its tools do outside is lines in the file that `OFFICE_NOTES` names.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

MODE = sys.argv[1]
TOOL: dict[str, Any] = {"name": "look", "description": "Looks.", "inputSchema": {"type": "object", "properties": {}}}


def effect(line: str) -> None:
    with open(os.environ["OFFICE_NOTES"], "a", encoding="utf-8") as notes:
        notes.write(line + "\n")


def say(message: Any) -> None:
    sys.stdout.write((message if isinstance(message, str) else json.dumps(message)) + "\n")
    sys.stdout.flush()


def answer(request: dict[str, Any]) -> dict[str, Any]:
    match request["method"]:
        case "initialize":
            version = request["params"]["protocolVersion"]
            return {
                "protocolVersion": version,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "bare", "version": "1"},
            }
        case "tools/list":
            return tools(request)
        case "tools/call":
            return call(request)
        case "ping":
            return {}
        case _:
            raise LookupError(request["method"])


def tools(request: dict[str, Any]) -> dict[str, Any]:
    match MODE:
        case "two of a name":
            return {"tools": [TOOL, TOOL]}
        case "endless list":
            cursor = int((request.get("params") or {}).get("cursor", "0")) + 1
            return {"tools": [{**TOOL, "name": f"look{cursor}"}], "nextCursor": str(cursor)}
        case "circular list":
            return {"tools": [TOOL], "nextCursor": "again"}
        case "no object":
            return {"tools": [{**TOOL, "inputSchema": {"type": "string"}}]}
        case "free keys":
            return {"tools": [{**TOOL, "inputSchema": {"type": "object", "additionalProperties": True}}]}
        case "listing is no list":
            return {"tools": "none"}
        case "counts listings":
            effect("listed")
    names = ["look", "die", "hang", "refuse"]
    return {"tools": [{**TOOL, "name": name} for name in names]}


def call(request: dict[str, Any]) -> dict[str, Any]:
    name = request["params"]["name"]
    effect(f"{name} {(request['params'].get('_meta') or {}).get('standfast/idempotency-key')}")
    if name == "die":
        os._exit(3)
    if name == "hang":
        time.sleep(600)
    if name == "refuse":
        raise LookupError("refused")
    if MODE == "answers garbage":
        return {"content": 7}
    return {"content": [{"type": "text", "text": f"seen by {os.getpid()}"}]}


def main() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN if MODE == "ignores its end" else signal.SIG_DFL)
    match MODE:
        case "prints":
            say("Starting up ...")
        case "speaks garbage":
            for number in range(3000):
                say(f"I am no MCP server {number}")
        case "line without an end":
            while True:
                sys.stdout.write("x" * 65536)
        case "bytes":
            sys.stdout.buffer.write(b"\xff\xfe\xff\n")
            sys.stdout.flush()
        case "says nothing":
            time.sleep(600)
        case "starts slowly":
            time.sleep(0.5)
        case "ends at once":
            sys.exit(7)
        case "ignores its end":
            helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            effect(f"{os.getpid()} {helper.pid}")
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request or "method" not in request:
            continue
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
        try:
            reply["result"] = answer(request)
        except LookupError as error:
            reply["error"] = {"code": -32000 if "refused" in str(error) else -32601, "message": str(error)}
        if MODE == "floods":
            news = {"level": "info", "data": "x" * 500}
            for _ in range(2000):
                say({"jsonrpc": "2.0", "method": "notifications/message", "params": news})
        say(reply)
    if MODE == "ignores its end":
        time.sleep(600)


main()
