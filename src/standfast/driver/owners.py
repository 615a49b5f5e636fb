"""Who owns the conversation of a run: exactly one, chosen once, for the run and whatever is resumed from it (D1)."""

from __future__ import annotations

from standfast.agents.as_tool import AgentTool
from standfast.driver.session_hold import session_id_of
from standfast.engine.run import Owner, Run
from standfast.ground.errors import OwnerError
from standfast.sessions.protocol import Session


def owner_of(
    session: Session | None, conversation_id: str | None, previous_response_id: str | None, auto: bool = False
) -> Owner:
    """Who owns the conversation of a run with these arguments; refuses two (D1)."""
    if session is None and conversation_id is None and previous_response_id is None and not auto:
        return Owner()
    has_chain = previous_response_id is not None or auto
    chain = "auto_previous_response_id" if previous_response_id is None else "previous_response_id"
    given = {"session": session is not None, "conversation_id": conversation_id is not None, chain: has_chain}
    named = [name for name, is_given in given.items() if is_given]
    if len(named) > 1:
        raise OwnerError(
            f"the conversation would have two owners: {' and '.join(named)}",
            "Keep one: a session stores the history here; the other two leave it to the server.",
        )
    for name, value in (("conversation_id", conversation_id), ("previous_response_id", previous_response_id)):
        if value is not None and not _is_id(value):
            raise OwnerError(f"{value!r} is no {name}", "Give the id that the server gave, or leave it out.")
    if session is not None:
        return Owner("session", session_id_of(session))
    if conversation_id is not None:
        return Owner("conversation", conversation_id)
    return Owner("chain", previous_response_id)


def owner_of_tool(tool: AgentTool) -> Owner:
    """Who owns the conversation of an agent that runs as a tool."""
    return owner_of(tool.session, tool.conversation_id, tool.previous_response_id)


def _is_id(value: object) -> bool:
    """Whether a server can have given it: text that is not empty, and holds no half of a surrogate pair."""
    return isinstance(value, str) and bool(value) and not any("\ud800" <= char <= "\udfff" for char in value)


def owner_on_resume(run: Run, given: Owner, previous_response_id: str | None) -> Owner:
    """The owner of a run that is resumed; raises OwnerError if the arguments name another (`given`)."""
    owner = run.spec.owner
    # Nothing was said, and nothing needs to be: a server's conversation is known by the id the run has.
    if given.kind == "replay" and owner.kind != "session":
        return owner
    same = given.kind == owner.kind
    if same and owner.kind == "conversation":
        same = given.id == owner.id
    if same and owner.kind == "chain":
        same = previous_response_id in (None, owner.id, run.marks.response_id)
    if same and owner.kind == "session":
        same = owner.id is None or given.id == owner.id
    if not same:
        raise OwnerError(
            f"run {run.spec.run_id!r} is owned by {_said(owner)} and would be resumed under {_said(given)}",
            "Resume it under its own owner, or start a new run to move the conversation.",
        )
    return owner


def _said(owner: Owner) -> str:
    name = {"replay": "the application", "chain": "response chain"}.get(owner.kind, owner.kind)
    return name if owner.id is None else f"{name} {owner.id!r}"
