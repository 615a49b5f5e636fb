"""Model requests: their content, and the meaning of a reply. Streamed runs and plain runs use the same code.

Attempts and retries are in `send_request`: here a request is one question with one answer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from copy import copy
from typing import Any

from standfast._src.agents.agent import Agent
from standfast._src.agents.run_config import CallModelData, ModelInputData
from standfast._src.base.aio import maybe_await
from standfast._src.base.errors import ItemNotStorableError, ModelBehaviorError, StandfastError, UserError
from standfast._src.base.json_values import Item, copy_json, encode_value
from standfast._src.base.safe_text import safe
from standfast._src.base.type_names import describe_type
from standfast._src.items.history import CUT_REPLY, LOCAL_CALL_TYPES, LeftOut, Prepared, deduplicate, omit_reasoning_id
from standfast._src.items.items import ModelResponse
from standfast._src.items.usage import Usage
from standfast._src.runs.engine.due import due
from standfast._src.runs.engine.events import Begun, CallModel, NotTaken, Settle
from standfast._src.runs.engine.request import left_out, ordinals_to_send, stateful, view_items
from standfast._src.runs.engine.run import Outgoing, Run
from standfast._src.runs.loop.loop import Loop
from standfast._src.runs.loop.run_scope import PreparedView, RunScope, logger
from standfast._src.runs.loop.usage_meter import Ticket
from standfast._src.runs.persistence.heard_messages import hear
from standfast._src.runs.persistence.lost_answers import ask_server, newest_item_id, not_sent, unknown_outcome
from standfast._src.runs.steps.allowed_callers import Callers
from standfast._src.runs.steps.call_hooks import announce_agent, hook_pair, observers, wants
from standfast._src.runs.steps.reply_parsing import Reply, call_digest
from standfast._src.runs.steps.resolved_agent import ResolvedAgent
from standfast._src.runs.steps.send_request import RequestSender
from standfast._src.sessions.item_sizes import check_item_sizes


async def call_model(loop: Loop, scope: RunScope, effect: CallModel) -> None:
    """Request the reply of this turn and record it in the run."""
    run = loop.run
    if scope.events is not None and effect.turn > 1:
        await scope.events.give_way()
        run = loop.run
        if all(effect.key != other.key for other in due(run)):
            return  # the watcher asked for a stop
    if scope.session is not None and scope.session.inbox and await hear(loop, scope):
        return  # what was said meanwhile comes first
    # From here on the turn counts as begun: a stop after the turn lets it finish.
    loop.last_requested_turn = effect.turn
    agent = scope.graph.agent(run.progress.agent)
    ordinals = ordinals_to_send(run) if run.spec.owner.is_server else ()
    items = [run.ledger[n].item for n in ordinals] if run.spec.owner.is_server else prepare_conversation(scope, run)
    await announce_agent(scope, run, agent, items)
    with scope.enter_user_code():
        resolved = await scope.agents.for_request(agent, has_used_tools=any(run.used_by(run.progress.agent)))
        sent, instructions = await _apply_input_filter(scope, agent, items, resolved.instructions)
    # What a filter left out of a server's delta is still to be sent: remembered by ordinal, offered again (D3).
    owed = left_out(ordinals, items, sent) if sent is not items and ordinals else ()
    if wants(scope, agent, "on_llm_start"):
        await hook_pair(scope, agent, "on_llm_start", scope.wrapper, agent, instructions, copy_json(sent))
    if stateful(run):
        # A filtered payload is kept whole: it is what the server will have, if this answer is lost.
        kept = None if sent is items else tuple(copy_json(item) for item in sent)
        ours = tuple(n for n in ordinals if n not in owed)
        await loop.record(Begun(None, Outgoing(effect.key, ours, kept), await newest_item_id(run, resolved)))
    # Where the place was remembered, an earlier request there was not found, and may still arrive.
    sending = RequestSender(
        loop, scope, resolved, instructions, sent, earlier_may_arrive=run.progress.after_item_id is not None
    )
    await loop.make_sure()
    response, failed = await sending.ask()
    await take_reply(loop, scope, effect, agent, resolved, response, failed=failed, owed=owed, ticket=sending.ticket)


async def settle_model(loop: Loop, scope: RunScope, effect: Settle) -> None:
    """Ask the server about a request already sent before a crash, and continue from its answer."""
    run = loop.run
    agent = scope.graph.agent(run.progress.agent)
    with scope.enter_user_code():
        resolved = await scope.agents.for_request(agent, has_used_tools=any(run.used_by(run.progress.agent)))
    found = await ask_server(run, resolved.model)
    if found is not None and found.response is not None:
        await take_reply(loop, scope, effect, agent, resolved, found.response, owed=not_sent(run))
    elif found is not None and not found.taken:
        await loop.record(NotTaken(after_item_id=run.progress.after_item_id), completes=effect)
    else:
        error = unknown_outcome(run, found)
        if found is not None or not await RequestSender(loop, scope, resolved, None, []).may_send_again(error):
            raise error
        await loop.record(NotTaken(), completes=effect)


async def take_reply(
    loop: Loop,
    scope: RunScope,
    effect: CallModel | Settle,
    agent: Agent[Any],
    resolved: ResolvedAgent,
    response: ModelResponse,
    *,
    failed: int = 0,
    owed: tuple[int, ...] = (),
    ticket: Ticket | None = None,
) -> None:
    """Parse a whole reply, announce its items, and record it in the run."""
    run = loop.run
    counted = Usage()
    counted.add(Usage.from_provider(response.usage))
    if failed:  # attempts that failed are part of what the reply cost
        counted = counted.after_failed_attempts(failed)
        response = copy(response)  # a model may give the same object again
        response.usage = counted.copy()
    scope.wrapper.usage.add(counted)
    if scope.meter is not None:
        scope.meter.note_reply(counted, resolved.model, failed, ticket)
    try:
        reply = _read(scope, run, agent, resolved, response)
    except ModelBehaviorError:
        if run.spec.owner.kind == "conversation":
            # Refused here, and there it stands: the server waits for an output of every call, and would take nothing
            # else. So the run knows the calls, none of which runs, and hands their outputs over (D11).
            with contextlib.suppress(StandfastError):
                seen = Reply(scope.graph.key(agent)).take(response.output)
                await loop.record(seen.event(effect.turn, response, counted, owed), completes=effect)
        raise
    scope.asked_calls = {call.id: call.digest for call in reply.calls}
    scope.shown_calls.clear()  # of earlier turns: a server may use an id again
    for entry, original in zip(reply.entries, reply.originals, strict=True):
        scope.remember(entry.item, original)
    scope.responses.append(response)
    scope.show_entries(reply.entries)
    name = getattr(resolved.model, "model", None)
    asked = name if isinstance(name, str) else None
    await loop.record(reply.event(effect.turn, response, counted, owed, asked, run.progress.agent), completes=effect)
    for do in scope.when_accepted:
        await do()
    scope.when_accepted = ()
    # After the reply is recorded: it was paid for, and a hook that raises must not throw it away.
    await observers(loop, scope, agent, "on_llm_end", scope.wrapper, agent, response)


def _read(scope: RunScope, run: Run, agent: Agent[Any], resolved: ResolvedAgent, response: ModelResponse) -> Reply:
    """Parse the reply with this agent's tools and handoffs."""
    is_told = scope.config.tool_not_found_behavior == "return_error_to_model"
    is_server = run.spec.owner.is_server
    reply = Reply(
        scope.graph.key(agent),
        tools=resolved.tools_by_name,
        handoffs=resolved.handoffs_by_name,
        kind_of_missing="unknown" if is_told else None,
        known=_update_known_calls(scope, run),
        answers_repeats=is_server,
        callers=Callers(tools=resolved.tools, history=lambda: view_items(run, scope.history), is_elsewhere=is_server),
    )
    reply.take(response.output)
    if scope.session is not None:
        _check_sizes(reply, scope.session.item_bytes_max)
    return reply


def _check_sizes(reply: Reply, bound: int) -> None:
    """Refuse a reply with an item above the bound of the session, before any call begins."""
    try:
        check_item_sizes([encode_value(entry.item) for entry in reply.entries], bound)
    except ItemNotStorableError as error:
        raise ModelBehaviorError(f"the model's reply cannot be stored: {error.what}", error.remedy) from error


def _update_known_calls(scope: RunScope, run: Run) -> dict[str, str]:
    """Return the call ids of this run's history with their digests. Only new entries of the ledger are read."""
    for entry in run.ledger.since(scope.known_upto):
        call_id = entry.item.get("call_id")
        is_ours = entry.kind in ("tool_call_item", "handoff_call_item") and entry.item.get("type") in LOCAL_CALL_TYPES
        if is_ours and isinstance(call_id, str):
            scope.known_calls[call_id] = scope.asked_calls.get(call_id) or call_digest(entry.item)
    scope.known_upto = len(run.ledger)
    return scope.known_calls


# --- what is sent ----------------------------------------------------------------------------------------------------


def prepare_conversation(scope: RunScope, run: Run) -> list[Item]:
    """Prepare the client-owned conversation for a provider. Only items added since the last turn are processed."""
    so_far = scope.prepared
    if so_far is None or so_far.view_count != len(run.views):
        base: Sequence[Item] = [*(scope.history if run.view.base is None else run.view.base), *scope.seen.open_turns]
        if scope.shown_base is not None and len(run.views) == 1:
            base = scope.shown_base
        items = [*base, *(entry.item for entry in run.ledger.since(run.view.tail))]
        so_far = scope.prepared = PreparedView(len(run.views), Prepared(_as_sent(scope, items)), len(run.ledger))
    elif so_far.ledger_count < len(run.ledger):
        so_far.items.extend(_as_sent(scope, [entry.item for entry in run.ledger.since(so_far.ledger_count)]))
        so_far.ledger_count = len(run.ledger)
    cut = scope.session.cut if scope.session is not None else ()
    left_out = [*(LeftOut(item, CUT_REPLY) for item in cut), *so_far.items.left_out]
    if left_out and len(left_out) != len(scope.left_out):
        scope.left_out = left_out
        logger.warning(
            "%d items of the history were left out of the request: a call without its output, an output without its"
            " call, or a part of a reply, which no provider accepts. They were not deleted. Their calls: %s",
            len(scope.left_out),
            safe(", ".join(dict.fromkeys(str(one.item["call_id"]) for one in scope.left_out if "call_id" in one.item))),
        )
    return so_far.items.list()


def _as_sent(scope: RunScope, items: Sequence[Item]) -> Sequence[Item]:
    """The items under the run's `reasoning_item_id_policy`, those of the session's history included."""
    omit = scope.config.reasoning_item_id_policy == "omit"
    return [omit_reasoning_id(item) for item in items] if omit else items


async def _apply_input_filter(
    scope: RunScope, agent: Agent[Any], items: list[Item], instructions: str | None
) -> tuple[list[Item], Any]:
    """Return the request as changed by `call_model_input_filter`. The filter gets copies, and changes the model's view
    only.
    """
    function = scope.config.call_model_input_filter
    if function is None:
        return items, instructions
    data = CallModelData(
        ModelInputData([copy_json(item) for item in items], instructions), agent, scope.wrapper.context
    )
    changed = await maybe_await(function(data))
    if not isinstance(changed, ModelInputData) or not isinstance(changed.input, list):
        raise UserError(
            f"call_model_input_filter returned {type(changed).__name__}"
            if not isinstance(changed, ModelInputData)
            else f"call_model_input_filter returned an input that is {describe_type(changed.input)}",
            "Return ModelInputData(input=[...], instructions=...) with a list of items.",
        )
    # What the filter repeats is sent once, as what the run itself puts together is (C2).
    return deduplicate(changed.input), changed.instructions
