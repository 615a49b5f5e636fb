"""Asking the model: one performer for both modes.

That a watched run calls `stream_response` and an unwatched one `get_response` is the only fork, in `_attempt`; what
is sent, what is retried and what the reply means cannot differ. Retries live here: the run learns of a reply, or of
nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import random
from typing import Any

from standfast.agents.retry_policies import decide
from standfast.agents.run_config import CallModelData, ModelInputData
from standfast.driver.agent_offer import Offer, offer_of
from standfast.driver.hooks import announce_agent, hook_pair, wants
from standfast.driver.loop import Driver
from standfast.driver.lost_answers import mark, settled, unknown
from standfast.driver.reply_parsing import classify, known_calls
from standfast.driver.run_scope import UNTRACED, Live, logger
from standfast.engine.due import due
from standfast.engine.events import Begun, CallModel, NotTaken, Replied, Settle
from standfast.engine.request import left_out, offered, stateful, view_items
from standfast.engine.run import Response, Run
from standfast.ground.errors import ModelBehaviorError, ModelTimeoutError, UserError
from standfast.ground.jsonvalue import Item, copy_json
from standfast.llm.failures import normalise_error
from standfast.llm.interface import ModelTracing
from standfast.llm.reply import StreamAssembler
from standfast.llm.retry import (
    Ask,
    GiveUp,
    ModelRetryAdvice,
    ModelRetryAdviceRequest,
    ModelRetryNormalizedError,
    RetryDecision,
    RetryPolicyContext,
    Wait,
    after,
    is_conversation_locked,
    not_taken,
)
from standfast.llm.settlement import Settled
from standfast.words.history import Prepared, omit_reasoning_id
from standfast.words.items import ModelResponse
from standfast.words.stream_events import RawResponsesStreamEvent
from standfast.words.usage import Usage


async def call_model(driver: Driver, live: Live, effect: CallModel) -> None:
    """Ask for the reply of this turn and tell the run of it."""
    run = driver.run
    if live.watch is not None and effect.turn > 1:
        await live.watch.taken()
        run = driver.run
        if all(effect.key != other.key for other in due(run)):
            return  # a stop came in while the watcher was catching up
    driver.asked = effect.turn
    agent = live.graph.agent(run.progress.agent)
    ordinals = offered(run) if run.spec.owner.is_server else ()
    items = [run.ledger[n].item for n in ordinals] if run.spec.owner.is_server else prepared(live, run)
    await announce_agent(live, run, agent, items)
    offer = await offer_of(live, run, agent)
    sent, instructions = await _filtered(live, agent, items, offer.instructions)
    owed = left_out(ordinals, items, sent) if sent is not items and ordinals else ()
    if wants(live, agent, "on_llm_start"):
        await hook_pair(live, agent, "on_llm_start", live.wrapper, agent, instructions, copy_json(sent))
    late = run.progress.mark is not None  # an earlier request at this place was not found, and may still arrive
    if stateful(run):
        kept = None if sent is items else tuple(copy_json(item) for item in sent)
        ours = tuple(n for n in ordinals if n not in owed)
        await driver.tell(Begun(key=effect.key, sent=ours, mark=await mark(run, offer), payload=kept))
    response, failed = await _ask(driver, live, offer, instructions, sent, late)
    await take_reply(driver, live, effect, agent, offer, response, failed=failed, owed=owed)


async def take_reply(
    driver: Driver,
    live: Live,
    effect: CallModel | Settle,
    agent: Any,
    offer: Offer,
    response: ModelResponse,
    *,
    failed: int = 0,
    owed: tuple[int, ...] = (),
) -> None:
    """A whole reply is here: take it apart, announce it, and tell the run."""
    run = driver.run
    counted = Usage()
    if failed:
        counted.add_failed_attempts(failed)
    counted.add(Usage.from_provider(response.usage))
    live.wrapper.usage.add(counted)
    reply = classify(
        response.output,
        agent=live.graph.key(agent),
        tools=offer.tools_by_name,
        handoffs=offer.handoffs_by_name,
        known=_known(live, run),
        unknown_tool=lambda name: _unknown_tool(live, agent, name),
    )
    for entry, original in zip(reply.entries, reply.originals, strict=True):
        live.remember(entry.item, original)
    live.responses.append(response)
    live.show_entries(reply.entries)
    await hook_pair(live, agent, "on_llm_end", live.wrapper, agent, response)
    record = Response(
        tuple(entry.item for entry in reply.entries),
        counted.to_json(),
        response.response_id,
        response.request_id,
    )
    await driver.tell(
        Replied(
            effect.turn,
            tuple(reply.entries),
            tuple(reply.calls),
            record,
            owed,
            again=reply.hosted or reply.skipped > 0,
            used=tuple(reply.used),
        ),
        effect=effect,
    )


def _known(live: Live, run: Run) -> dict[str, str]:
    """The call ids of this run's history, found once each."""
    upto, known = live.cache.get("known", (0, {}))
    known.update(known_calls(run.ledger.since(upto)))
    live.cache["known"] = (len(run.ledger), known)
    return known  # type: ignore[no-any-return]


def _unknown_tool(live: Live, agent: Any, name: str) -> str:
    if live.config.tool_not_found_behavior == "return_error_to_model":
        return "unknown"
    raise ModelBehaviorError(
        f"the model called tool {name!r}, which agent {agent.name!r} does not have",
        "Give the agent that tool, or set RunConfig(tool_not_found_behavior='return_error_to_model').",
    )


# --- what is sent ----------------------------------------------------------------------------------------------------


def prepared(live: Live, run: Run) -> list[Item]:
    """The client-owned conversation as a provider accepts it; only what is new since the last turn is worked on."""
    views = len(run.views)
    state = live.cache.get("prepared")
    if state is None or state[0] != views:
        view = run.view
        base = live.history if view.base is None else view.base
        items = [*base, *(entry.item for entry in run.ledger.since(view.tail))]
        state = (views, Prepared(_as_sent(live, items)), len(run.ledger))
    _, list_so_far, upto = state
    if upto < len(run.ledger):
        list_so_far.extend(_as_sent(live, [entry.item for entry in run.ledger.since(upto)]))
    live.cache["prepared"] = (views, list_so_far, len(run.ledger))
    sent: list[Item] = list_so_far.list()
    if list_so_far.left_out and len(list_so_far.left_out) != len(live.left_out):
        live.left_out = list(list_so_far.left_out)
        logger.warning(
            "%d items of the history were left out of the request: a call without its output, or an output without its"
            " call, which no provider accepts. They were not deleted.",
            len(live.left_out),
        )
    return sent


def _as_sent(live: Live, items: list[Item]) -> list[Item]:
    """The items under the run's `reasoning_item_id_policy`, those of the session's history included."""
    omit = live.config.reasoning_item_id_policy == "omit"
    return [omit_reasoning_id(item) for item in items] if omit else items


async def _filtered(live: Live, agent: Any, items: list[Item], instructions: str | None) -> tuple[list[Item], Any]:
    """What the `call_model_input_filter` makes of the request; it gets copies and changes only the model's view."""
    function = live.config.call_model_input_filter
    if function is None:
        return items, instructions
    data = CallModelData(ModelInputData([copy_json(item) for item in items], instructions), agent, live.wrapper.context)
    changed = function(data)
    if inspect.isawaitable(changed):
        changed = await changed
    if not isinstance(changed, ModelInputData) or not isinstance(changed.input, list):
        raise UserError(
            f"call_model_input_filter returned {type(changed).__name__}"
            if not isinstance(changed, ModelInputData)
            else f"call_model_input_filter returned an input that is a {type(changed.input).__name__}",
            "Return ModelInputData(input=[...], instructions=...) with a list of items.",
        )
    return changed.input, changed.instructions


# --- asking, and asking again ----------------------------------------------------------------------------------------


async def _ask(
    driver: Driver, live: Live, offer: Offer, instructions: str | None, items: list[Item], late: bool
) -> tuple[ModelResponse, int]:
    """The reply, and how many attempts failed before it. `late`: an earlier request may still arrive."""
    attempt, failed, locked = 1, 0, 0
    last: Exception | None = None
    while True:
        begun = [False]
        if late and (arrived := await _arrived(driver.run, offer, items, last)) is not None:
            return arrived, failed
        if driver.run.progress.reply_id is not None:
            await driver.tell(_named(driver.run, None))  # that was the answer to an earlier attempt
        try:
            with _span(live, offer, driver.run, instructions, items, failed + 1) as span:
                response = await _attempt(driver, live, offer, instructions, items, begun)
                if span is not None:
                    span.note(response=response)
            return response, failed
        except Exception as error:
            run, found = driver.run, None
            failure, advice = _read(offer, live, run, error, attempt)
            if stateful(run) and not not_taken(failure, advice):
                found = await settled(run, offer, items, error)
                if found is not None and found.taken:
                    if found.response is not None:
                        return found.response, failed
                    await driver.tell(_named(run, getattr(error, "response_id", None)))
                    raise unknown(run, found, error) from error
                # The server does not have it: that is evidence (D5), and in a conversation only as of now.
                late = late or (found is not None and run.spec.owner.kind == "conversation")
            verdict = await _verdict(offer, live, run, error, failure, advice, attempt, locked, begun[0], found)
            if isinstance(verdict, GiveUp):
                lost = await _given_up(driver, verdict, late, failure, error)
                if lost is not None:
                    raise lost from error
                raise
            failed += 1
            attempt, locked = (attempt + 1, locked) if verdict.counted else (attempt, locked + 1)
            last = error
            await asyncio.sleep(verdict.seconds)


async def _arrived(run: Run, offer: Offer, items: list[Item], error: Exception | None) -> ModelResponse | None:
    """The answer to an earlier request with the same, if it was only slow; None if the server still has not got it."""
    found = await settled(run, offer, items, error)
    if found is None or (found.taken and found.response is None):
        raise unknown(run, found, error) from error
    return found.response


async def _given_up(driver: Driver, verdict: GiveUp, late: bool, failure: Any, error: Exception) -> Exception | None:
    """What to raise instead of the error, if its outcome is unknown; else the run learns that it may be asked again."""
    run = driver.run
    if verdict.outcome_unknown or (late and is_conversation_locked(failure)):  # the lock may be our own request's
        return unknown(run, None, error)
    if run.progress.begun is not None and not late:
        await driver.tell(NotTaken())  # a conversation is looked at again when the run is resumed
    return None


def _span(live: Live, offer: Offer, run: Run, instructions: str | None, items: list[Item], attempt: int) -> Any:
    if live.tracer is None:
        return UNTRACED  # a turn stays cheap where nobody traces
    return live.span(
        "model",
        getattr(offer.model, "model", ""),
        agent=live.graph.agent(run.progress.agent),
        offer=offer,
        instructions=instructions,
        items=items,
        attempt=attempt,
        stream=live.watch is not None,
        conversation=run.spec.owner.id if run.spec.owner.kind in ("session", "conversation") else None,
    )


async def _verdict(
    offer: Offer,
    live: Live,
    run: Run,
    error: Exception,
    failure: ModelRetryNormalizedError,
    advice: ModelRetryAdvice | None,
    attempt: int,
    locked: int,
    begun: bool,
    found: Settled | None,
) -> Wait | GiveUp:
    """What to do about a failed attempt; the user's policy is asked only if it can matter."""
    decision: RetryDecision | None = None
    while True:
        verdict = after(
            failure,
            attempt=attempt,
            settings=offer.settings.retry,
            stateful=stateful(run),
            output_begun=begun,
            advice=advice,
            decision=decision,
            locked_retries=locked,
            settled_not_taken=found is not None,
            jitter=random.random(),
        )
        if not isinstance(verdict, Ask):
            return verdict
        decision = await _policy(offer, live, run, error, failure, advice, attempt)


async def approved(offer: Offer, live: Live, run: Run, error: Exception) -> bool:
    """Whether the user's policy takes it upon itself to send again a request that the server may have taken."""
    failure, advice = _read(offer, live, run, error, 1)
    return isinstance(await _verdict(offer, live, run, error, failure, advice, 1, 0, False, None), Wait)


def _conversation_id(run: Run) -> str | None:
    return run.spec.owner.id if run.spec.owner.kind == "conversation" else None


def _read(
    offer: Offer, live: Live, run: Run, error: Exception, attempt: int
) -> tuple[ModelRetryNormalizedError, ModelRetryAdvice | None]:
    """What is known about a failure: what it says itself, and what the model's adapter says about it."""
    failure = normalise_error(error)
    ask = getattr(offer.model, "get_retry_advice", None)
    if ask is None:
        return failure, None
    advice: ModelRetryAdvice | None = ask(
        ModelRetryAdviceRequest(
            error=error,
            attempt=attempt,
            stream=live.watch is not None,
            previous_response_id=run.marks.response_id,
            conversation_id=_conversation_id(run),
        )
    )
    return (failure, None) if advice is None else (failure.overlaid(advice.normalized), advice)


async def _policy(
    offer: Offer, live: Live, run: Run, error: Exception, failure: Any, advice: Any, attempt: int
) -> RetryDecision:
    settings = offer.settings.retry
    assert settings is not None
    assert settings.policy is not None
    return await decide(
        settings.policy,
        RetryPolicyContext(
            error=error,
            attempt=attempt,
            max_retries=settings.max_retries or 0,
            stream=live.watch is not None,
            normalized=failure,
            provider_advice=advice,
            previous_response_id=run.marks.response_id,
            conversation_id=_conversation_id(run),
        ),
    )


async def _attempt(
    driver: Driver, live: Live, offer: Offer, instructions: str | None, items: list[Item], begun: list[bool]
) -> ModelResponse:
    """One request. `begun[0]` becomes true once something of a reply has been seen."""
    timeout_s = offer.settings.timeout
    if timeout_s is None:
        return await _send(driver, live, offer, instructions, items, begun)
    try:
        async with asyncio.timeout(timeout_s) as limit:
            return await _send(driver, live, offer, instructions, items, begun)
    except TimeoutError as error:
        if limit.expired():
            raise ModelTimeoutError(timeout_s) from error
        raise


async def _send(
    driver: Driver, live: Live, offer: Offer, instructions: str | None, items: list[Item], begun: list[bool]
) -> ModelResponse:
    run = driver.run
    ids = {
        "previous_response_id": run.marks.response_id,
        "conversation_id": _conversation_id(run),
        "prompt": offer.prompt,
    }
    tracing = ModelTracing.DISABLED
    if not live.config.tracing_disabled:
        sensitive = live.config.trace_include_sensitive_data
        tracing = ModelTracing.ENABLED if sensitive else ModelTracing.ENABLED_WITHOUT_DATA
    if live.watch is None:
        response = await offer.model.get_response(
            system_instructions=instructions,
            input=items,
            model_settings=offer.settings,
            tools=offer.tools,
            output_schema=offer.schema,
            handoffs=offer.handoffs,
            tracing=tracing,
            **ids,
        )
        if not hasattr(response, "output"):
            raise ModelBehaviorError(
                f"the model returned a {type(response).__name__}", "A Model returns ModelResponse(output, usage, id)."
            )
        whole: ModelResponse = response
        return whole
    assembler = StreamAssembler()
    stream = offer.model.stream_response(
        instructions, items, offer.settings, offer.tools, offer.schema, offer.handoffs, tracing, **ids
    )
    try:
        show, feed = live.watch.show, assembler.feed
        # Behind a response nothing can be listed. That its answer had a name is all a lost one can be asked for by.
        unnamed = run.progress.begun is not None and run.spec.owner.kind == "chain"
        async for event in stream:
            show(RawResponsesStreamEvent(event))
            feed(event)
            if unnamed and assembler.response_id is not None:
                unnamed = False
                await driver.tell(_named(run, assembler.response_id))
    except Exception as error:
        begun[0] = assembler.output_begun
        if getattr(error, "response_id", None) is None and assembler.response_id is not None:
            with contextlib.suppress(AttributeError):
                error.response_id = assembler.response_id  # type: ignore[attr-defined]  # what a settlement asks about
        raise
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()
    return assembler.result(preserve_raw_usage=bool(offer.settings.preserve_raw_usage))


def _named(run: Run, reply_id: str | None) -> Begun:
    progress = run.progress
    return Begun(None, progress.begun, progress.sent, progress.mark, progress.payload, reply_id)


def view_of(live: Live, run: Run) -> list[Item]:
    """The model's view as it is, for `to_input_list("normalized")`."""
    return view_items(run, live.history)
