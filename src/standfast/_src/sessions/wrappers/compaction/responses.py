"""History compacted by OpenAI's `responses.compact`, over any session.

The names and arguments are the OpenAI Agents SDK's; the promises are ours (C9, D8). A compaction reads the whole
history whatever the default limit, replaces it in one step if it is still what was read, keeps the old one so that
`undo_compaction` can put it back, and leaves calls and approvals that are still open where they are, behind the result.

There are two ways to ask. With `input` the items are sent. With `previous_response_id` the server compacts the chain it
holds, which is right only while that chain is this history: once something was written that the chain cannot have,
`auto` sends the items instead, and asking for the chain is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from standfast._src.base.errors import CompactionRefusedError, InvalidSettingError
from standfast._src.base.json_values import Item, copy_json
from standfast._src.base.logs import session_logger as _log
from standfast._src.items.history import normalise, prune
from standfast._src.items.usage import Usage
from standfast._src.models.providers.client import OwnClients, default_client, default_key
from standfast._src.sessions.protocol import Head, Lease, Session, abilities
from standfast._src.sessions.rules.compaction import (
    DEFAULT_COMPACTION_THRESHOLD,
    CompactionMode,
    OpenAIResponsesCompactionArgs,
    OpenAIResponsesCompactionAwareSession,
    ResolvedMode,
    default_should_trigger_compaction,
    is_openai_model_name,
    is_openai_responses_compaction_aware_session,
    is_unknown_response,
    resolve_mode,
    sanitised_output,
    select_compaction_candidate_items,
    split_open,
)
from standfast._src.sessions.rules.saved_runs import Recorded
from standfast._src.sessions.wrappers.compaction.base import CompactingSession, Snapshot

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from openai.types.responses import CompactedResponse

    from standfast._src.sessions.client.session_wrapper import ContextForSession

__all__ = [
    "DEFAULT_COMPACTION_THRESHOLD",
    "OpenAIResponsesCompactionArgs",
    "OpenAIResponsesCompactionAwareSession",
    "OpenAIResponsesCompactionSession",
    "default_should_trigger_compaction",
    "is_openai_model_name",
    "is_openai_responses_compaction_aware_session",
    "select_compaction_candidate_items",
]

_MODES = ("auto", "input", "previous_response_id")


class OpenAIResponsesCompactionSession(CompactingSession):
    """Session with a history kept short by `responses.compact`, and with the abilities of the wrapped session.

    Args:
        session_id: The name of the conversation.
        underlying_session: The session with the history.
        client: An OpenAI client, which stays the caller's; left out, the default one, or one that is made when it is
            first needed.
        model: The compacting model.
        compaction_mode: "input" sends the history, "previous_response_id" names a stored response, "auto" chooses.
        should_trigger_compaction: A function of `response_id`, `compaction_mode` (resolved),
            `compaction_candidate_items` and `session_items`, which says if it is time; left out, at ten candidates.
        max_rollback_items: Longest history that this process may have to write back after a failure: on a plain
            session, and in every compaction outside of a run. A longer one is refused with CompactionRefusedError
            before anything is sent. A store with `replace` needs no such copy in a run.
    """

    def __init__(
        self,
        session_id: str,
        underlying_session: Session,
        *,
        client: AsyncOpenAI | None = None,
        model: str = "gpt-4.1",
        compaction_mode: CompactionMode = "auto",
        should_trigger_compaction: Callable[[dict[str, Any]], bool] | None = None,
        max_rollback_items: int | None = None,
    ) -> None:
        super().__init__(session_id, underlying_session)
        if _owns_its_history(underlying_session):
            raise InvalidSettingError(
                "the history of an OpenAIConversationsSession is the server's and cannot be replaced from here",
                "Wrap a session that holds its own history, for example SQLiteSession.",
            )
        if not is_openai_model_name(model):
            raise InvalidSettingError(
                f"{model!r} is not a model that responses.compact takes",
                "Use a model of OpenAI's (gpt-…, o1, …, or ft:…), or SummarisingSession with any model.",
            )
        if max_rollback_items is not None and max_rollback_items <= 0:
            raise InvalidSettingError(
                f"max_rollback_items must be positive or None, and it is {max_rollback_items}",
                "Give the length of the longest history to compact, or leave it out.",
            )
        self.model = model
        self.max_rollback_items = max_rollback_items
        self.compaction_mode = _check_mode(compaction_mode)
        self.should_trigger_compaction = should_trigger_compaction or default_should_trigger_compaction
        self._given = client
        self._own: OwnClients | None = None
        self._response_id: str | None = None
        self._unstored_id: str | None = None
        self._response_fingerprint: object = None
        self._appended: tuple[Head, bool] | None = None
        self._deferred_id: str | None = None

    @property
    def client(self) -> AsyncOpenAI:
        """Client for compactions: given, default, or our own."""
        found = self._given or default_client()
        if found is not None:
            return found
        if self._own is None:
            self._own = OwnClients(api_key=default_key())
        return self._own()

    @property
    def deferred_response_id(self) -> str | None:
        """Id of the first response with a delayed compaction, if any; the next compaction is then done unasked."""
        return self._deferred_id

    async def defer_compaction(
        self, response_id: str, *, store: bool | None = None, wrapper: ContextForSession = None
    ) -> None:
        """Note a response with a compaction delayed until the tool outputs are there (C9).

        Nothing is sent. The decision is made now, by the hook; the next `run_compaction` carries it out.
        """
        if self._deferred_id is not None:
            return
        snapshot = await self._snapshot(wrapper)
        mode = resolve_mode("auto", response_id=response_id, stored=store, in_doubt="")
        mode = mode if self.compaction_mode == "auto" else self.compaction_mode
        if self._should_compact(response_id, mode, snapshot.items):
            self._deferred_id = response_id

    # --- compacting ------------------------------------------------------------------------------

    async def _compact(self, args: OpenAIResponsesCompactionArgs, wrapper: object) -> list[Item] | None:
        chosen = _check_mode(args.get("compaction_mode") or self.compaction_mode)
        await self._check_rollback(wrapper)
        snapshot = await self._snapshot(wrapper)
        self._remember(args.get("response_id"), args.get("store"), snapshot)
        mode = self._mode(chosen, args.get("store"), snapshot)
        rest, pinned = split_open(snapshot.items)
        forced = bool(args.get("force")) or self._deferred_id is not None
        if not rest or not (forced or self._should_compact(self._response_id, mode, snapshot.items)):
            return None
        self._deferred_id = None
        response = await self._ask(mode, rest, may_fall_back=chosen == "auto")
        _count(response, wrapper)
        output = sanitised_output(response.output)
        if not output:
            raise CompactionRefusedError(
                "responses.compact gave nothing back", "The history is as it was; compact it again later."
            )
        await self._swap(snapshot, [*output, *pinned], wrapper)
        self._forget_chain()  # it holds what the history was before
        return [copy_json(item) for item in output]

    async def _check_rollback(self, wrapper: object) -> None:
        limit = self.max_rollback_items
        if limit is None or (wrapper is not None and "replace" in abilities(self.underlying_session)):
            return
        if len(await self.get_items(limit=limit + 1, wrapper=wrapper)) > limit:  # never reads the whole of a long one
            raise CompactionRefusedError(
                f"the history exceeds max_rollback_items={limit} and stays as it is",
                "Compact it more often, or raise the limit.",
            )

    def _remember(self, response_id: str | None, store: bool | None, snapshot: Snapshot) -> None:
        """Remember the last response of the history, its time, and its storage on the server."""
        if response_id and response_id != self._response_id:
            self._response_id = response_id
            self._response_fingerprint = self._appended[0] if self._appended is not None else snapshot.fingerprint
        if store is False and self._response_id:
            self._unstored_id = self._response_id
        elif store is True and self._unstored_id == self._response_id:
            self._unstored_id = None

    def _mode(self, chosen: CompactionMode, store: bool | None, snapshot: Snapshot) -> ResolvedMode:
        known = self._response_id is not None
        stored = False if known and self._unstored_id == self._response_id else store
        mode = resolve_mode(
            chosen, response_id=self._response_id, stored=stored, in_doubt=self._doubt(snapshot) if known else ""
        )
        # Without a lease another run may have written between this run's reading and its append. That is a suspicion
        # and no proof: enough to send the items where the choice is ours, not enough to refuse what was asked for.
        alone = self._appended is None or self._appended[1]
        return mode if alone or chosen != "auto" else "input"

    def _doubt(self, snapshot: Snapshot) -> str:
        limit = getattr(self.session_settings, "limit", None)
        if isinstance(limit, int) and len(snapshot.items) > limit:
            return "a default limit hides a part of the history from the requests that made the chain"
        if self._response_fingerprint != snapshot.fingerprint:
            return "the history has changed since that response"
        return ""

    def _should_compact(self, response_id: str | None, mode: str, items: Sequence[Item]) -> bool:
        return bool(
            self.should_trigger_compaction(
                {
                    "response_id": response_id,
                    "compaction_mode": mode,
                    "compaction_candidate_items": select_compaction_candidate_items(items),
                    "session_items": [copy_json(item) for item in items],
                }
            )
        )

    async def _ask(self, mode: ResolvedMode, items: Sequence[Item], *, may_fall_back: bool) -> CompactedResponse:
        if mode == "previous_response_id":
            try:
                return await self.client.responses.compact(model=self.model, previous_response_id=self._response_id)
            except Exception as error:
                if not (may_fall_back and is_unknown_response(error)):
                    raise
                _log.info("the server does not know response %s; the items are compacted instead", self._response_id)
        sent, _ = prune([normalise(copy_json(item)) for item in items])
        request: Any = sent  # plain dicts; the client's types name every kind of item there is
        return await self.client.responses.compact(model=self.model, input=request)

    @property
    def declared_abilities(self) -> frozenset[str]:
        """Abilities of the wrapped session: the methods overridden here only track the response chain."""
        return super().declared_abilities

    # --- what changes the history, and so what the chain is worth ------------------------------------------------

    async def append(
        self,
        items: Sequence[Item],
        *,
        writer: str,
        start: int,
        expect: Head | None = None,
        lease: Lease | None = None,
        digests: Sequence[bytes] | None = None,
    ) -> Head:
        """Store items as this writer's items number `start` and on, exactly once over all repeats (B1)."""
        head = await super().append(items, writer=writer, start=start, expect=expect, lease=lease, digests=digests)
        self._appended = (head, lease is not None)
        return head

    def record(self, **given: Any) -> Coroutine[Any, Any, Recorded]:
        """Append items, save a run, and give the lease back, in one step or not at all."""
        waiting = super().record(**given)
        if given.get("detached"):
            return waiting  # whoever submits it may not wait, and compacts nothing behind it
        is_append = bool(given.get("items") or given.get("nested"))
        return self._track_append(waiting, is_append, given.get("lease") is not None)

    async def _track_append(self, waiting: Coroutine[Any, Any, Recorded], is_append: bool, is_leased: bool) -> Recorded:
        done = await waiting
        if is_append:
            self._appended = (done.head, is_leased)
        return done

    async def pop_item(self, *, wrapper: ContextForSession = None) -> Item | None:
        """Remove and return the newest item; None when there is none."""
        item = await super().pop_item(wrapper=wrapper)
        self._forget_chain()
        return item

    async def clear_session(self, *, wrapper: ContextForSession = None) -> None:
        """Remove everything stored for this session id, a delayed compaction included."""
        await super().clear_session(wrapper=wrapper)
        self._deferred_id = None
        self._forget_chain()

    async def undo_compaction(self) -> None:
        """Restore the history before the last replacement; items appended since stay behind it. A second call is redo
        (B4).
        """
        await super().undo_compaction()
        self._forget_chain()

    def _forget_chain(self) -> None:
        self._response_id = self._response_fingerprint = self._appended = None

    # --- around ------------------------------------------------------------------------------

    def close(self) -> Coroutine[Any, Any, None]:
        """Close the wrapped session, now; the client too if it is our own, when the result is awaited."""
        closing = super().close()
        return closing if self._own is None else _both(closing, self._own)

    def _rewrap(self, session: Session) -> OpenAIResponsesCompactionSession:
        return OpenAIResponsesCompactionSession(
            session.session_id,
            session,
            client=self._given,
            model=self.model,
            compaction_mode=self.compaction_mode,
            should_trigger_compaction=self.should_trigger_compaction,
            max_rollback_items=self.max_rollback_items,
        )


def _check_mode(mode: Any) -> CompactionMode:
    if mode not in _MODES:
        raise InvalidSettingError(f"{mode!r} is not a compaction mode", f"Use one of {', '.join(_MODES)}.")
    chosen: CompactionMode = mode
    return chosen


def _owns_its_history(session: object) -> bool:
    # By name along the class's bases: the SDK's class of this name is meant as much as ours.
    return any(kind.__name__ == "OpenAIConversationsSession" for kind in type(session).__mro__)


def _count(response: CompactedResponse, wrapper: object) -> None:
    """Add the cost of the request to the run that asked for it."""
    usage, spent = getattr(wrapper, "usage", None), getattr(response, "usage", None)
    if usage is not None and spent is not None:
        usage.add(Usage.from_provider(spent))


async def _both(closing: Coroutine[Any, Any, None], own: OwnClients) -> None:
    try:
        await closing
    finally:
        await own.aclose()
