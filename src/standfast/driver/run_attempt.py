"""One call of the runner, from its arguments to rest: borrow what is needed, drive, give it back.

A fresh run, a resumed one and one that is run again under its old id differ only in the `Run` that the driver starts
with. Whatever is borrowed (the lease on a session, its history) is given back at the end of every run (C14).
"""

from __future__ import annotations

import asyncio
import inspect
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from standfast.agents.error_handlers import RunErrorDetails
from standfast.driver.agent_graph import AgentGraph
from standfast.driver.calls import show_outputs
from standfast.driver.compact_after import compact_after
from standfast.driver.conclude import restored_output
from standfast.driver.event_buffer import Watch
from standfast.driver.guardrails import input_guardrails
from standfast.driver.loop import CLOSING_GRACE_S, Driver, heard
from standfast.driver.perform import performer
from standfast.driver.rebuild import adopted
from standfast.driver.result import RunResultBase
from standfast.driver.run_saver import RunSaver
from standfast.driver.run_scope import Live, Tracer, usage_of
from standfast.driver.saved_checks import check_saved, check_tools, check_unclaimed
from standfast.driver.session_hold import Conversation, session_id_of
from standfast.driver.unsent import warn_if_owing
from standfast.engine.advance import advance, refuse_finished
from standfast.engine.codec import decode_saved, ending_of, has_ended
from standfast.engine.due import due
from standfast.engine.events import Claimed, Stopped
from standfast.engine.run import Owner, Run, Verdict, begin
from standfast.engine.run_store import RunStore
from standfast.ground.errors import (
    OwnerError,
    RunClaimedError,
    RunStateError,
    SessionBusyError,
    SessionConflictError,
    StandfastError,
    UserError,
)
from standfast.ground.jsonvalue import Item, copy_json, encode
from standfast.words.history import deduplicate, normalise, sanitise_for_store
from standfast.words.items import ItemHelpers, ModelResponse, readable
from standfast.words.stream_events import AgentUpdatedStreamEvent
from standfast.words.usage import Usage


class Execution:
    """Everything one run needs, and the order in which it is borrowed and given back."""

    def __init__(
        self,
        *,
        agent: Any,
        given_input: str | list[Item],
        wrapper: Any,
        config: Any,
        provider: Callable[[], Any],
        hooks: Any = None,
        max_turns: int | None = 10,
        error_handlers: Any = None,
        owner: Owner,
        session: Any = None,
        watch: Watch | None = None,
        outer: Execution | None = None,
        invocation: Any = None,
        resumed: Run | None = None,
        revision: int = 0,
        store: RunStore | None = None,
        tracer: Tracer | None = None,
        run_id: str | None = None,
        takeover: bool = False,
        moved: Callable[[Run], Awaitable[None]] | None = None,
    ) -> None:
        self._nested = outer is not None
        if outer is not None and tracer is not None:
            tracer = tracer.under(config)  # it may be told to keep quiet, or to keep out what was said
        self.started = False
        self._takeover = takeover
        self.config, self.session, self.owner = config, session, owner
        self._resumed, self.revision, self._store = resumed, revision, store
        self.given_revision = revision
        self._was_running = self._has_read = False
        self._own = own_items(given_input)
        if owner.kind == "session":
            for item in self._own:
                encode(item)  # what no session takes is refused now, not when tools have run and nothing can be stored
        conversation = None
        self.live: Live
        if session is not None:
            held = outer.live.conversation if outer is not None else None
            conversation = Conversation(session, config=config, wrapper=wrapper, outer=held)
        self.live = Live(
            graph=AgentGraph(agent),
            wrapper=wrapper,
            config=config,
            hooks=hooks,
            conversation=conversation,
            watch=watch,
            error_handlers=error_handlers,
            given_input=given_input if isinstance(given_input, str) else [copy_json(item) for item in given_input],
            provider=provider,
            invocation=invocation,
            tracer=tracer,
        )
        self.max_turns = max_turns
        self.run_id = run_id or config.run_id or uuid.uuid4().hex
        start = resumed if resumed is not None else self._fresh(None)
        self.driver = Driver(start, performer(self.live), moved=moved)
        self.live.spawn = partial(Execution, outer=self, provider=provider, tracer=tracer)

    @property
    def run(self) -> Run:
        """The run as it is now."""
        return self.driver.run

    # --- the order of things -----------------------------------------------------------------------------------------

    async def go(self) -> None:
        """Run to rest. Raises what ended the run, with what is known about it."""
        live = self.live
        try:
            start = live.graph.start
            with live.span(
                "run", start.name, run_id=self.run_id, agent=start, owner=self.owner, given=live.given_input
            ) as span:
                first: BaseException | None = None
                try:
                    await self._open()
                    await self.driver.drive()
                    self._show_rest()
                    warn_if_owing(self.run)
                    if (self.run.tripped or self.run.withheld) and live.tripped is None:
                        refuse_finished(self.run)  # the tripwire was in another attempt; now what it left is stored
                    if self.session is not None:
                        await compact_after(self.driver, live)
                except BaseException as error:
                    first = error
                    raise
                finally:
                    if span is not None:
                        span.note(run=self.run, usage=usage_of(self.run), final=live.final_output, error=live.tripped)
                    await self._give_back(first or live.tripped)
        except StandfastError as error:
            error.run_data = self.details()
            raise
        if live.tripped is not None:
            if isinstance(live.tripped, StandfastError):
                live.tripped.run_data = self.details()
            raise live.tripped

    async def _open(self) -> None:
        live, conversation = self.live, self.live.conversation
        store = self.run_store()
        resting = self._resumed is not None and await self._may_resume(self._resumed, store)
        if conversation is not None and not resting:
            await self._hold(conversation, store)
        if self._resumed is not None:
            run = await (self._looked_at if resting else self._claim)(self._resumed, store)
        else:
            earlier = await self._earlier(store)
            if earlier is not None:
                run = earlier
            else:
                base = await self._view_base()
                run = self.driver.run if base is None else self._fresh(base)
            if store is not None and self.driver.saver is None:
                self.driver.saver = RunSaver(store, needed=self.config.run_id is not None)
        self.driver.run = run  # before anything else can fail: what an error carries must be this run
        self.started = True
        if conversation is not None and run.view.base is None and not self._has_read:
            live.history = await conversation.read()
            live.history_tail = run.marks.stored
        if live.watch is not None:
            live.shown_agent = run.progress.agent
            live.show(AgentUpdatedStreamEvent(live.graph.agent(run.progress.agent)))

    async def _may_resume(self, run: Run, store: RunStore | None) -> bool:
        """Refuse what cannot go on, before anything is taken; True if nothing was decided, so that nothing is due."""
        if run.settled:
            refuse_finished(run)
        self._check_owner(run)
        check_saved(run, self.live.graph)
        self._was_running = await check_unclaimed(run, store, self.revision) == "running"
        return run.paused and not due(run)

    async def _hold(self, conversation: Conversation, store: RunStore | None) -> None:
        try:
            await conversation.hold()
        except SessionBusyError:
            if self._resumed is not None:  # whoever has the session may have it because they resumed this very run
                await check_unclaimed(self._resumed, store, self.revision)
            raise

    async def _looked_at(self, run: Run, store: RunStore | None) -> Run:
        """A run that has ended, or about which nobody has decided: it is read, and neither written nor consumed."""
        if not run.settled:
            run = advance(run, Claimed(run.progress.claim or "", stored=await self._held(run)))
        if store is not None:
            self.driver.saver = RunSaver(store, revision=self.revision, saved=run)
        self._remember(run)
        return run

    async def _held(self, run: Run) -> int:
        """How many of the run's items its session holds, whatever the run knows of that."""
        conversation = self.live.conversation
        if conversation is None:
            return 0
        held = await conversation.counts(run.spec.run_id, run.marks.stored)
        if held > len(run.ledger):
            raise RunClaimedError(
                f"run {run.spec.run_id!r} has gone on since this state of it was taken: its session holds {held} of its"
                f" items, and the state knows {len(run.ledger)}",
                "Resume its latest state, or by its id; what it has done since must not be done again.",
            )
        return held

    async def settle_abandoned(self, run: Run, message: str) -> None:
        """Give up a saved run: what is open is closed with `message`, written down, and stored whole."""
        store, conversation = self.run_store(), self.live.conversation
        assert store is not None  # a saved run is given up where it was found
        try:
            if run.settled:
                refuse_finished(run)
            self._check_owner(run)
            if conversation is not None:
                await self._hold(conversation, store)
            run = advance(run, Claimed(uuid.uuid4().hex, stored=await self._held(run)))
            run = advance(run, Stopped("abandoned", message=message)) if not run.finished else run
            self.driver.saver = saver = RunSaver(store, revision=self.revision, needed=True)
            await saver.save(run)
            self.driver.run = run
            await self.driver.drive()
        finally:
            await self._give_back()

    async def _give_back(self, first: BaseException | None = None) -> None:
        """Give back what was borrowed; an error of that never hides `first`, which ended the run."""
        if self.live.conversation is None:
            return
        giving = asyncio.ensure_future(self._let_go(self.live.conversation))
        giving.add_done_callback(heard)
        if self.driver.leftover is not None:
            return  # nobody waits for what was told to stop, and the next run gets the session when it has
        try:
            await asyncio.shield(giving)  # a cancellation that comes now must not keep the lease
        except Exception as second:
            if first is None:
                raise
            first.add_note(f"While the session was given back, this happened too: {second!r}")

    async def _let_go(self, conversation: Conversation) -> None:
        if self.driver.leftover is not None:
            await asyncio.wait([self.driver.leftover], timeout=CLOSING_GRACE_S)
        await conversation.release()
        if self.config.close_session:
            closing = getattr(self.session, "close", None)
            result = closing() if closing is not None else None
            if inspect.isawaitable(result):
                await result

    def run_store(self) -> RunStore | None:
        """Where this run is saved: where the settings say, where it was found, or beside its session."""
        if self.config.save == "never" or self._nested:
            return None  # a nested run is saved with its parent
        if self.config.run_store != "auto":
            store: RunStore | None = self.config.run_store
            return store
        beside = self.live.conversation.run_store() if self.live.conversation is not None else None
        return beside if self._store is None else self._store

    # --- where a run starts ------------------------------------------------------------------------------------------

    def _fresh(self, base: list[Item] | None) -> Run:
        agent = self.live.graph.start
        return begin(
            run_id=self.run_id,
            agent=self.live.graph.key(agent),
            input_items=self._own,
            owner=self.owner,
            base=tuple(base) if base is not None else None,
            max_turns=self.max_turns,
            verdict=self._verdict(),
            input_is_text=isinstance(self.live.given_input, str),
        )

    def _verdict(self) -> Verdict:
        guardrails = input_guardrails(self.live, self.live.graph.start)
        if not guardrails:
            return "passed"
        # What a server has taken cannot be taken back: there, every guardrail comes first (D10).
        if self.owner.kind == "conversation" or any(not one.run_in_parallel for one in guardrails):
            return "blocking"
        return "parallel"

    async def _view_base(self) -> list[Item] | None:
        """What a `session_input_callback` makes the model see; None where it sees the history and the input."""
        conversation, callback = self.live.conversation, self.config.session_input_callback
        if conversation is None:
            return None
        self.live.history = await conversation.read()
        self._has_read = True
        if callback is None:
            return None
        if not callable(callback):
            raise UserError(
                f"session_input_callback is a {type(callback).__name__}", "Give a function (history, new) -> list."
            )
        seen = callback([copy_json(item) for item in self.live.history], [copy_json(item) for item in self._own])
        if inspect.isawaitable(seen):
            seen = await seen
        if not isinstance(seen, list):
            raise UserError(
                f"session_input_callback returned a {type(seen).__name__}", "Return the list of items the model sees."
            )
        strangers = {type(item).__name__ for item in seen if not isinstance(item, dict)}
        if strangers:
            raise UserError(
                f"session_input_callback returned a list with {', '.join(sorted(strangers))} in it",
                "Every item the model sees is a dict in the Responses input format.",
            )
        return [copy_json(item) for item in seen]

    async def _earlier(self, store: RunStore | None) -> Run | None:
        """What an earlier run of the same name left: its saved state, or, failing that, its items in the session."""
        if self.config.run_id is None:
            return None
        saved = await store.load_run(self.run_id) if store is not None else None
        if saved is not None and not has_ended(saved):
            return await self._again(decode_saved(saved), store, saved.revision)
        conversation = self.live.conversation
        count = await conversation.accepted(self.run_id) if conversation is not None else 0
        items = await conversation.written(self.run_id) if conversation is not None and count else []
        if not items:
            if count:
                # Its ordinals are used up: whatever this run would store under them would be taken for a repeat.
                raise SessionConflictError(
                    f"run {self.run_id!r} has written to this session, and what it wrote cannot be told any more",
                    "Resume it from its state, or start a new run under another run_id.",
                )
            if saved is not None:
                raise RunStateError(f"run {self.run_id!r} has ended", "Start the next run under another run_id.")
            return None
        if saved is not None and store is not None:
            self.driver.saver = RunSaver(store, revision=saved.revision, needed=False)
        return await adopted(self.live, self._fresh(None), items, ending_of(saved) if saved is not None else None)

    async def _again(self, earlier: Run, store: RunStore | None, revision: int) -> Run:
        given = [entry.item for entry in self.driver.run.ledger]
        if given != [entry.item for entry in earlier.ledger[: earlier.spec.input_count]]:
            raise SessionConflictError(
                f"run {self.run_id!r} was started with another input than it is given now",
                "Give the same input to continue it, or another run_id to start a new run.",
            )
        self._check_owner(earlier)
        check_saved(earlier, self.live.graph)
        self.live.wrapper.usage.add(usage_of(earlier))  # what it cost before is part of what it costs
        self.revision = revision
        if earlier.settled or (earlier.paused and not due(earlier)):
            return await self._looked_at(earlier, store)
        return await self._claim(earlier, store)

    async def _claim(self, run: Run, store: RunStore | None) -> Run:
        """Take a saved run, once: of two who try, the second is told and nothing of it runs (C12)."""
        conversation, revision = self.live.conversation, self.revision
        leased = conversation is not None and conversation.lease is not None
        if self._was_running and not (leased or self._takeover or self.config.run_id):
            # With a lease on its session we would know that whoever had it is gone. Here nobody can tell.
            raise RunClaimedError(
                f"run {run.spec.run_id!r} is marked as running, perhaps by another worker",
                "If that worker is gone, resume it with takeover=True; what it had begun is settled, not repeated.",
            )
        run = advance(run, Claimed(uuid.uuid4().hex, stored=await self._held(run)))
        self._remember(run)
        await check_tools(self.live, run)
        if store is not None:
            # The whole run is written, not what is new: the state at hand may be ahead of what was saved.
            self.driver.saver = saver = RunSaver(store, revision=revision, needed=revision > 0)
            if saver.needed:
                await saver.save(run)
        return run

    def _decisions(self, run: Run) -> None:
        book = self.live.wrapper.approvals
        known = {(one.call_id, one.scope, one.approved) for one in book.decisions()}
        for one in run.progress.decisions:
            if (one.call_id, one.scope, one.approved) not in known:
                book.record(one)
        book.drain()

    def _check_owner(self, run: Run) -> None:
        owner, session = run.spec.owner, self.session
        if owner.kind == "session":
            given = session_id_of(session) if session is not None else None
            if session is None or (owner.id is not None and given != owner.id):
                raise OwnerError(
                    f"run {run.spec.run_id!r} belongs to session {owner.id!r} and was given {given!r}",
                    "Resume it with the session it was started with.",
                )
        elif session is not None:
            raise OwnerError(
                f"run {run.spec.run_id!r} is not owned by a session ({owner.kind}) and was given one",
                "Resume it without session=, or start a new run on the session.",
            )

    def _remember(self, run: Run) -> None:
        """Give the live side what a resumed run knows."""
        live = self.live
        self._decisions(run)
        if run.progress.ended:
            live.final_output = restored_output(live, run)
        live.responses = [
            ModelResponse(
                [readable(item) for item in one.items], Usage.from_json(one.usage), one.response_id, one.request_id
            )
            for one in run.responses
            if not one.hidden
        ]
        inputs = [entry.item for entry in run.ledger[: run.spec.input_count]]
        text = inputs[0].get("content") if run.spec.input_is_text and len(inputs) == 1 else None
        live.given_input = text if isinstance(text, str) else [copy_json(item) for item in inputs]
        self.run_id = run.spec.run_id
        if run.turn is not None:
            live.cache["shown"] = {call.id for call in run.turn.calls if call.state == "returned"}

    # --- the end -----------------------------------------------------------------------------------------------------

    def _show_rest(self) -> None:
        if self.run.paused and self.run.turn is not None:
            show_outputs(self.live, self.run.turn, self.run, all_so_far=True)

    def details(self) -> RunErrorDetails:
        """What the run has done so far, for an error to carry."""
        result = RunResultBase(self.driver, self.live, self.max_turns)
        live = self.live
        return RunErrorDetails(
            input=live.given_input,
            new_items=result.new_items,
            raw_responses=live.responses,
            last_agent=live.graph.agent(self.run.progress.agent),
            context_wrapper=live.wrapper,
            input_guardrail_results=live.input_results,
            output_guardrail_results=live.output_results,
            tool_input_guardrail_results=live.tool_input_results,
            tool_output_guardrail_results=live.tool_output_results,
            owed_items=result.owed_items,
        )


def own_items(given: str | list[Item]) -> list[Item]:
    """The run's own input as items: normalised and de-duplicated, sharing nothing with the caller's (C1, C2)."""
    if not isinstance(given, str | list):
        raise UserError(
            f"the input of a run is a {type(given).__name__}", "Give a text, a list of items, or a RunState."
        )
    # Questions to a person are left out here, where no ordinal counts them yet (C5).
    items = [sanitise_for_store(normalise(item)) for item in ItemHelpers.input_to_new_input_list(given)]
    return deduplicate([item for item in items if item is not None])
