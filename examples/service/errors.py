"""Errors as clients see them."""

from __future__ import annotations

from fastapi.responses import JSONResponse


def refusal(status: int, kind: str, what: str, remedy: str) -> JSONResponse:
    """Build the response that says what happened and what to do."""
    headers = {"retry-after": "1"} if status == 503 else None
    return JSONResponse({"error": {"kind": kind, "what": what, "remedy": remedy}}, status, headers)
