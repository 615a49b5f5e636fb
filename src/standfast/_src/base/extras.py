"""Third-party packages of standfast's extras, and the error that names the install command.

Every import of such a package is inside `needed_by`, so that a user without the extra reads a one-line install command
instead of a `ModuleNotFoundError` under twenty frames.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

EXTRAS: dict[str, str] = {
    "openai": "openai",
    "litellm": "litellm",
    "any_llm": "any-llm",
    "mcp": "mcp",
    "mcp_types": "mcp",
    "httpx2": "mcp",
    "anyio": "mcp",
    "redis": "redis",
    "psycopg": "postgres",
    "procrastinate": "procrastinate",
    "dbos": "dbos",
    "temporalio": "temporal",
    "genai_prices": "prices",
    "cryptography": "encrypt",
    "sqlalchemy": "sqlalchemy",
    "websockets": "realtime",
    "starlette": "inspect",
    "uvicorn": "inspect",
    "xllamacpp": "local",
    "hypothesis": "conformance",
    "pytest": "conformance",
    "pytest_asyncio": "conformance",
}
"""Third-party package to the extra of standfast that installs it."""


@contextmanager
def needed_by(what: str) -> Iterator[None]:
    """Run a block that imports packages of an extra for `what`; turn a missing package into an error with the command.

    Any other module that is missing raises as it is: that is a defect, not something to install.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        raise ImportError(
            f"{what} needs the package {package!r}. Install it with: pip install 'standfast[{EXTRAS[package]}]'",
            name=error.name,
        ) from error
