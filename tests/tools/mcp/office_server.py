"""A real MCP server for tests, made with the official package: `office_server.py stdio`, or `http PORT`, or `sse PORT`.

What its tools do outside is lines in the file that `OFFICE_NOTES` names, so that a test can count effects.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ImageContent, ToolAnnotations

server = MCPServer("office", log_level="ERROR")


def effect(line: str) -> None:
    with Path(os.environ["OFFICE_NOTES"]).open("a", encoding="utf-8") as notes:
        notes.write(line + "\n")


@server.tool()
def note(text: str) -> str:
    """Write something down."""
    effect(f"note {text}")
    return f"noted {text}"


@server.tool()
def add(a: int, b: int) -> dict[str, int]:
    """Add two numbers."""
    return {"sum": a + b}


@server.tool()
def process_id() -> str:
    """Which process this is."""
    return str(os.getpid())


@server.tool()
async def what_meta(ctx: Context[Any, Any]) -> str:
    """Tell what came as `_meta`."""
    meta = ctx.request_context.meta or {}
    key = dict(meta).get("standfast/idempotency-key")
    effect(f"meta {key} {dict(meta).get('trace')}")
    return str(key)


@server.tool()
def die_after_effect() -> str:
    """Do something and die before the answer."""
    effect("died")
    os._exit(3)


@server.tool()
def hang_after_effect() -> str:
    """Do something and never answer."""
    effect("hung")
    time.sleep(600)
    return "late"


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def look_after_death() -> str:
    """Read something; die at the first attempt."""
    effect("looked")
    if len(Path(os.environ["OFFICE_NOTES"]).read_text(encoding="utf-8").split()) == 1:
        os._exit(3)
    return "seen"


@server.tool()
def fail(why: str) -> str:
    """Fail."""
    raise ToolError(why)


@server.tool()
def picture() -> ImageContent:
    """A picture."""
    return ImageContent(type="image", data="AA==", mime_type="image/png")


@server.tool()
def long_text(length: int) -> str:
    """A long text."""
    return "x" * length


@server.prompt()
def greet(who: str) -> str:
    """A greeting."""
    return f"Greet {who}."


@server.resource("office://hours")
def hours() -> str:
    """When the office is open."""
    return "9 to 5"


@server.resource("office://desk/{number}")
def desk(number: str) -> str:
    """Who sits at a desk."""
    return f"desk {number}"


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    elif sys.argv[1] == "http":
        server.run("streamable-http", port=int(sys.argv[2]))
    else:
        server.run("sse", port=int(sys.argv[2]))
