"""Sending and resending of a request: retries, questions to the server first, and the end of attempts.

A streamed run calls `stream_response`, any other `get_response`: this is the only fork between the two modes, in
`_send`. The decision to retry never depends on it. The run learns of a whole reply, or of nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from standfast._src.agents.retry_policies import decide
from standfast._src.base.errors import ModelBehaviorError, ModelTimeoutError
from standfast._src.base.json_values import Item, copy_json
from standfast._src.base.type_names import describe_type
from standfast._src.items.items import ModelResponse
from standfast._src.items.stream_events import RawResponsesStreamEvent
from standfast._src.models.error_reading import normalise_error
from standfast._src.models.interface import ModelTracing
from standfast._src.models.model_settings import ModelSettings
from standfast._src.models.outcome_query import Settled
from standfast._src.models.retry import (
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
from standfast._src.models.stream_assembly import StreamAssembler
from standfast._src.runs.engine.events import Begun, NotTaken
from standfast._src.runs.engine.request import stateful
from standfast._src.runs.engine.run import Run, evolve
from standfast._src.runs.loop.event_queue import EventQueue
from standfast._src.runs.loop.loop import Loop
from standfast._src.runs.loop.run_scope import UNTRACED, RunScope, Span
from standfast._src.runs.loop.usage_meter import Ticket, estimate_request
from standfast._src.runs.persistence.lost_answers import ask_server, unknown_outcome
from standfast._src.runs.steps.resolved_agent import ResolvedAgent


class RequestSender:
    """One request of a run, with all its attempts."""

    def __init__(
        self,
        loop: Loop,
        scope: RunScope,
        resolved: ResolvedAgent,
        instructions: str | None,
        items: list[Item],
        *,
        earlier_may_arrive: bool = False,
    ) -> None:
        self._loop, self._scope, self._resolved = loop, scope, resolved
        self._instructions, self._items = instructions, items
        self._earlier_may_arrive = earlier_may_arrive
        """Whether a request with the same was not found at the server, and may only have been slow."""
        self._attempt = 1
        """The number of this attempt, as the retry settings count."""
        self._lock_count = 0
        """Attempts that met a conversation locked by another: waited for, and not counted."""
        self._output_begun = False
        self.ticket: Ticket | None = None
        """Reservation of the attempt under way, or of the reply (F10)."""

    @property
    def _run(self) -> Run:
        return self._loop.run

    async def ask(self) -> tuple[ModelResponse, int]:
        """Return the reply and the number of failed attempts before it. Raise the error of the last attempt."""
        failed = 0
        last: Exception | None = None
        while True:
            self._output_begun = False
            if self._earlier_may_arrive and (arrived := await self._fetch_late_reply(last)) is not None:
                return arrived, failed
            outgoing = self._run.progress.outgoing
            if outgoing is not None and outgoing.reply_id is not None:
                await self._name_reply(None)  # that was the answer to an earlier attempt
            if self._scope.meter is not None:
                estimate = estimate_request(self._items, self._instructions, self._resolved)
                self.ticket = await self._scope.meter.begin_request(self._resolved.model, estimate)
                await self._loop.make_sure()  # saving took its time
            try:
                with self._span(failed + 1) as span:
                    response = await (self._send_in_time() if self.ticket is None else self._send_metered(self.ticket))
                    if span is not None:
                        span.note(response=response)
                return response, failed
            except Exception as error:
                found, wait = await self._resolve_failure(error)
                if found is not None:
                    return found, failed
                failed, last = failed + 1, error
                await asyncio.sleep(wait)

    async def _resolve_failure(self, error: Exception) -> tuple[ModelResponse | None, float]:
        """Return the reply that arrived despite a failed attempt, or the wait before the next attempt; else raise."""
        run, found = self._run, None
        failure, advice = self._read(error)
        is_doubtful = stateful(run) and not not_taken(failure, advice)
        if is_doubtful:
            found = await ask_server(run, self._resolved.model, error)
            if found is not None and found.taken:
                if found.response is not None:
                    return found.response, 0
                await self._name_reply(getattr(error, "response_id", None))
                raise unknown_outcome(run, found, error) from error
            # The server does not have it: that is evidence (D5), and in a conversation only as of now.
            if found is not None and run.spec.owner.kind == "conversation":
                self._earlier_may_arrive = True
        try:
            verdict = await self._verdict(error, failure, advice, found)
        except Exception as policys:  # it ends the attempts as well, and knows nothing of the request
            if is_doubtful or self._earlier_may_arrive:
                self._note_doubt(policys)
            raise
        if isinstance(verdict, GiveUp):
            await self._say_what_is_unknown(verdict, failure, error)
            raise error
        if verdict.counted:
            self._attempt += 1
        else:
            self._lock_count += 1
        return None, verdict.seconds

    async def _fetch_late_reply(self, error: Exception | None) -> ModelResponse | None:
        """Return the late answer to an earlier equal request; None if the server still lacks it."""
        found = await ask_server(self._run, self._resolved.model, error)
        if found is None or (found.taken and found.response is None):
            raise unknown_outcome(self._run, found, error) from error
        return found.response

    async def _say_what_is_unknown(self, verdict: GiveUp, failure: ModelRetryNormalizedError, error: Exception) -> None:
        """Add the unknown outcome of attempts to the final error, or raise an error for it alone (D5)."""
        run = self._run
        # A lock may be that of our own request, which then has been taken.
        if verdict.outcome_unknown or (self._earlier_may_arrive and is_conversation_locked(failure)):
            raise unknown_outcome(run, None, error) from error
        if self._earlier_may_arrive:
            self._note_doubt(error)
        elif run.progress.outgoing is not None:
            await self._loop.record(NotTaken())

    def _note_doubt(self, error: Exception) -> None:
        error.add_note(
            f"Whether the server takes the last request of run {self._run.spec.run_id} after all is not known: resume"
            " it (error.run_state), which asks the server first."
        )

    # --- whether to try again ----------------------------------------------------------------------------------------

    async def _verdict(
        self,
        error: Exception,
        failure: ModelRetryNormalizedError,
        advice: ModelRetryAdvice | None,
        found: Settled | None,
    ) -> Wait | GiveUp:
        """Return the verdict on a failed attempt; the user's policy is called only if it can matter."""
        # The pure rule says first whether the policy can matter; its answer is then one more argument of the rule.
        decision: RetryDecision | None = None
        while True:
            verdict = after(
                failure,
                attempt=self._attempt,
                settings=self._resolved.settings.retry,
                stateful=stateful(self._run),
                output_begun=self._output_begun,
                advice=advice,
                decision=decision,
                locked_retries=self._lock_count,
                settled_not_taken=found is not None,
                jitter=random.random(),
            )
            if not isinstance(verdict, Ask):
                return verdict
            decision = await self._policy(error, failure, advice)

    async def may_send_again(self, error: Exception) -> bool:
        """Return True if the user's policy accepts the risk of resending a request that the server may have taken."""
        failure, advice = self._read(error)
        return isinstance(await self._verdict(error, failure, advice, None), Wait)

    def _read(self, error: Exception) -> tuple[ModelRetryNormalizedError, ModelRetryAdvice | None]:
        """Return the known facts about a failure: the error's own, and the model adapter's advice."""
        failure = normalise_error(error)
        ask = getattr(self._resolved.model, "get_retry_advice", None)
        if ask is None:
            return failure, None
        advice: ModelRetryAdvice | None = ask(
            ModelRetryAdviceRequest(
                error=error,
                attempt=self._attempt,
                stream=self._scope.events is not None,
                previous_response_id=self._run.marks.response_id,
                conversation_id=self._run.spec.owner.conversation_id,
            )
        )
        return (failure, None) if advice is None else (failure.overlaid(advice.normalized), advice)

    async def _policy(
        self, error: Exception, failure: ModelRetryNormalizedError, advice: ModelRetryAdvice | None
    ) -> RetryDecision:
        settings = self._resolved.settings.retry
        assert settings is not None  # `after` asks only where there is a policy
        assert settings.policy is not None
        return await decide(
            settings.policy,
            RetryPolicyContext(
                error=error,
                attempt=self._attempt,
                max_retries=settings.max_retries or 0,
                stream=self._scope.events is not None,
                normalized=failure,
                provider_advice=advice,
                previous_response_id=self._run.marks.response_id,
                conversation_id=self._run.spec.owner.conversation_id,
            ),
        )

    # --- one attempt -------------------------------------------------------------------------------------------------

    def _span(self, number: int) -> contextlib.AbstractContextManager[Span | None]:
        scope, owner = self._scope, self._run.spec.owner
        if scope.tracer is None:
            return UNTRACED  # type: ignore[no-any-return]  # a turn stays cheap without tracing
        return scope.span(
            "model",
            getattr(self._resolved.model, "model", ""),
            agent=scope.graph.agent(self._run.progress.agent),
            turn=self._loop.last_requested_turn,
            offer=self._resolved,
            instructions=self._instructions,
            items=self._items,
            attempt=number,
            stream=scope.events is not None,
            conversation=owner.id if owner.kind in ("session", "conversation") else None,
        )

    async def _send_metered(self, ticket: Ticket) -> ModelResponse:
        """Send the request; without a reply, count the reservation as spent unless certainly nothing was charged."""
        try:
            return await self._send_in_time()
        except BaseException as error:
            ticket.note_lost(is_free=isinstance(error, Exception) and not_taken(*self._read(error)))
            self.ticket = None
            raise

    async def _send_in_time(self) -> ModelResponse:
        # A limit of ours, told apart from a timeout inside the model, which is that adapter's to read.
        timeout_s = self._resolved.settings.timeout
        if timeout_s is None:
            return await self._send()
        try:
            async with asyncio.timeout(timeout_s) as limit:
                return await self._send()
        except TimeoutError as error:
            if limit.expired():
                raise ModelTimeoutError(timeout_s) from error
            raise

    async def _send(self) -> ModelResponse:
        resolved, run, config = self._resolved, self._run, self._scope.config
        ids = {
            "previous_response_id": run.marks.response_id,
            "conversation_id": run.spec.owner.conversation_id,
            "prompt": resolved.prompt,
        }
        tracing = ModelTracing.DISABLED
        if not config.tracing_disabled:
            sensitive = config.trace_include_sensitive_data
            tracing = ModelTracing.ENABLED if sensitive else ModelTracing.ENABLED_WITHOUT_DATA
        items, tools, handoffs = self._items, resolved.tools, resolved.handoffs
        settings = _with_cache_key(resolved.settings, resolved.model, run, group_id=config.group_id)
        if not type(resolved.model).__module__.startswith("standfast."):
            # An application's own model may change its arguments, to suit its API: these are the run's items, which are
            # stored and sent again, and may be the agent's own settings. Ours only read them, and need no copies.
            items, tools, handoffs = [copy_json(item) for item in items], list(tools), list(handoffs)
            settings = replace(settings)
        request: dict[str, Any] = {  # in the order in which `stream_response` takes them
            "system_instructions": self._instructions,
            "input": items,
            "model_settings": settings,
            "tools": tools,
            "output_schema": resolved.schema,
            "handoffs": handoffs,
            "tracing": tracing,
        }
        if self._scope.events is not None:
            # The SDK calls the one by position and the other by name, and other people's models rely on it.
            stream = resolved.model.stream_response(*request.values(), **ids)
            return await self._watch(_checked_stream(stream), self._scope.events)
        return _checked_reply(await resolved.model.get_response(**request, **ids))

    async def _name_reply(self, reply_id: str | None) -> None:
        """Record the id seen for the reply to the sent request."""
        progress = self._run.progress
        assert progress.outgoing is not None  # only what a server keeps has a name, and that begins with a record
        await self._loop.record(Begun(None, evolve(progress.outgoing, reply_id=reply_id), progress.after_item_id))

    async def _watch(self, stream: Any, events: EventQueue) -> ModelResponse:
        """Announce a streamed reply as it arrives, and assemble it."""
        run, assembler = self._run, StreamAssembler()
        try:
            show, feed = events.show, assembler.feed
            # Behind a response nothing can be listed. That its answer had a name is all a lost one can be asked for by.
            unnamed = run.progress.outgoing is not None and run.spec.owner.kind == "chain"
            async for event in stream:
                show(RawResponsesStreamEvent(event))
                feed(event)
                if unnamed and assembler.response_id is not None:
                    unnamed = False
                    await self._name_reply(assembler.response_id)
        except Exception as error:
            self._output_begun = assembler.output_begun
            if getattr(error, "response_id", None) is None and assembler.response_id is not None:
                with contextlib.suppress(AttributeError):
                    error.response_id = assembler.response_id  # type: ignore[attr-defined]  # what the server is asked
            raise
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()
        return assembler.result(preserve_raw_usage=bool(self._resolved.settings.preserve_raw_usage))


def _checked_reply(response: Any) -> ModelResponse:
    output = getattr(response, "output", None)
    if not isinstance(output, Sequence) or isinstance(output, str | bytes):
        given = type(response).__name__
        if hasattr(response, "output"):
            given += f" whose output is {describe_type(output)}"
        raise ModelBehaviorError(f"the model returned a {given}", "A Model returns ModelResponse(output, usage, id).")
    whole: ModelResponse = response
    return whole


def _checked_stream(stream: Any) -> Any:
    if not hasattr(stream, "__aiter__"):
        if inspect.iscoroutine(stream):
            stream.close()  # else Python says that it was never awaited, and nothing of what to do
        raise ModelBehaviorError(
            f"the model's stream_response returned {describe_type(stream)}",
            "Write it as an async generator (`async def` with `yield`), or return one from a plain `def`.",
        )
    return stream


# --- the key of a prompt ---------------------------------------------------------------------------------------------

CACHE_KEY = "prompt_cache_key"
# By it a provider finds the prompt it has cached: the same for what shares its beginning. The SDK sends one by default,
# and what is cached costs less. What it is made of names people (session ids are often addresses): a digest is sent.


def _with_cache_key(settings: ModelSettings, model: Any, run: Run, *, group_id: str | None) -> ModelSettings:
    """Return the settings with a prompt cache key for this run, if the model wants one and the program has set none."""
    wants = getattr(model, "wants_prompt_cache_key", None)
    said = (settings.extra_args, settings.extra_body)
    if wants is None or any(isinstance(one, Mapping) and CACHE_KEY in one for one in said) or not wants():
        return settings
    return replace(settings, extra_args={**(settings.extra_args or {}), CACHE_KEY: _cache_key(run, group_id)})


def _cache_key(run: Run, group_id: str | None) -> str:
    """Of the conversation, else the session, else the program's own group, else of this run alone."""
    owner, group = run.spec.owner, (group_id or "").strip()
    if owner.kind in ("conversation", "session") and owner.id:
        return _digest(owner.kind, owner.id)
    return _digest("group", group) if group else _digest("run", run.spec.run_id)


def _digest(kind: str, shared: str) -> str:
    return f"standfast:{kind}:{sha256(shared.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
