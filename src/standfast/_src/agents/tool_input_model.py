"""The usual arguments of an agent tool as a pydantic model; apart, so that only who asks for it loads pydantic."""

from __future__ import annotations

from pydantic import BaseModel


class AgentAsToolInput(BaseModel):
    """The arguments of an agent tool that has no `parameters` of its own."""

    input: str
