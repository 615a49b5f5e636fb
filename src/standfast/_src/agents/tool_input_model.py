"""Default arguments of an agent tool as a pydantic model; a separate module, so that only its users load pydantic."""

from __future__ import annotations

from pydantic import BaseModel


class AgentAsToolInput(BaseModel):
    """Arguments of an agent tool without its own `parameters`."""

    input: str
