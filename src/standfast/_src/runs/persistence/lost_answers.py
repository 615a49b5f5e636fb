"""Requests whose answer was lost: ask the server, never send blindly (D5).

There are two moments for it and one way: in the run that lost the answer, and in the one that is resumed after it. The
server is asked for its items behind the place that was known before the request left. A taken request is continued
from. A request that was not taken is sent again, after another look each time: a slow one may still arrive. If the
server cannot tell, only the user's policy may take the risk (`approve_unsafe_replay`); else the run ends with an error
that says so, and stays unchanged, so that resuming asks again.
"""

from __future__ import annotations

from typing import Any

from standfast._src.base.errors import ModelReplyError, SendOutcomeUnknownError
from standfast._src.base.operational_events import emit
from standfast._src.models.outcome_query import SendEvidence, Settled
from standfast._src.runs.engine.request import ordinals_to_send
from standfast._src.runs.engine.run import Run
from standfast._src.runs.loop.run_scope import logger
from standfast._src.runs.steps.resolved_agent import ResolvedAgent

_NOT_FOUND = 404


async def newest_item_id(run: Run, resolved: ResolvedAgent) -> str | None:
    """The newest item the server's conversation is known to have, by which a lost answer can be settled.

    After a reply it is the reply's last item; before the first one the server is asked, where it can be.
    """
    if run.spec.owner.kind != "conversation":
        return None
    if run.progress.after_item_id is not None:
        # An earlier request at this place may still arrive, and would stand behind it.
        return run.progress.after_item_id
    # Not a nested run's reply: that one went to another conversation.
    own = [response for response in run.responses if not response.hidden]
    known = own[-1].items[-1].get("id") if own and own[-1].items else None
    if isinstance(known, str):
        return known
    ask = getattr(resolved.model, "mark", None)
    if ask is None:
        return None
    try:
        found: str | None = await ask(run.spec.owner.id)
    except Exception as error:
        if getattr(error, "status_code", None) == _NOT_FOUND:
            raise  # there is no such conversation, and the request would say the same
        logger.warning("the server did not say where the conversation ends: %s; a lost answer may stay unknown", error)
        return None
    return found


async def ask_server(run: Run, model: Any, error: Exception | None = None) -> Settled | None:
    """Return the server's answer about the sent request; None: unknown."""
    ask, outgoing = getattr(model, "settle", None), run.progress.outgoing
    if ask is None:
        return None
    assert outgoing is not None  # what a server keeps is recorded before it leaves
    items = outgoing.payload if outgoing.payload is not None else [run.ledger[n].item for n in outgoing.sent]
    found: Settled | None = await ask(
        SendEvidence(
            list(items),
            conversation_id=run.spec.owner.conversation_id,
            previous_response_id=run.marks.response_id,
            response_id=getattr(error, "response_id", None) or outgoing.reply_id,
            after_item_id=run.progress.after_item_id,
            error=error,
        )
    )
    return found


def not_sent(run: Run) -> tuple[int, ...]:
    """Return the ordinals missing in the sent request: items that a filter withheld are still to be sent."""
    sent = run.progress.outgoing.sent if run.progress.outgoing is not None else ()
    return tuple(ordinal for ordinal in ordinals_to_send(run) if ordinal not in sent)


def unknown_outcome(run: Run, found: Settled | None, error: Exception | None = None) -> Exception:
    """Build the error of a run whose last request was taken without a whole reply, or has an unknown outcome."""
    owner = run.spec.owner
    where = f"conversation {owner.id!r}" if owner.kind == "conversation" else f"response {run.marks.response_id!r}"
    cause = f" ({type(error).__name__}: {error})" if error is not None else ""
    emit("outcome_unknown", what="a request", run=run.spec.run_id, done="the run ends and its error says so")
    if found is None:
        return SendOutcomeUnknownError(
            f"a request to {where} left and its answer was lost{cause}; whether the server took it is not known",
            "Resume the run (error.run_state) to ask the server again before anything is sent. To send it again "
            "whatever happened, resume with a retry policy that returns RetryDecision(retry=True, "
            "approve_unsafe_replay=True); a turn may then be there twice.",
        )
    # The server has it and gave no whole reply: neither sending nor waiting can bring one.
    remedy = f"What was sent is there: go on with a new run from {where}, or delete those items on the server first."
    if isinstance(error, ModelReplyError):
        error.add_note(f"The server has taken the request to {where}. {remedy}")
        return error
    return SendOutcomeUnknownError(
        f"a request to {where} was taken and the server has no whole reply to it{cause}", remedy
    )
