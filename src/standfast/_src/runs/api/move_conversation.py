"""Move of a conversation between a session and the server, repeatable after an interruption.

`move_to_conversation` copies the history of a session to a conversation of OpenAI's, `move_to_session` copies one back.
The source is never changed; afterwards use one of the two, for a conversation has one owner. Each returns a report of
the items left behind.

A repeated move continues where the last one ended. A session of standfast's knows the items of this move: the move is a
writer like any other, by name and ordinal. A server knows no writers: its items must be a prefix of the items being
moved, and the rest is added behind them. If it refuses an item, nothing of that request was stored; the refused item is
found in a trial conversation, deleted again, and its dependents (a call's output, the reasoning before a call) stay
behind too, or every later request would be refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from standfast._src.base.canonical_json import count_equal
from standfast._src.base.errors import ItemNotStorableError, StandfastError, StoreError, UserError
from standfast._src.base.json_values import Item, copy_json
from standfast._src.exports.lazy import edge
from standfast._src.models.outcome_query import alike
from standfast._src.sessions.foreign.carried_items import HistoryWriter, NotCarried, find_reworded, select_carried
from standfast._src.sessions.protocol import NO_LIMIT, Session, with_ability

CHUNK_ITEMS = 20
# What the service takes in one request: so each step of a move is there whole or not at all.


@dataclass(frozen=True, slots=True)
class MoveReport:
    """Result of a move, over all its attempts."""

    conversation_id: str
    """The server's conversation: the target of `move_to_conversation`, the source of `move_to_session`."""
    carried: int
    """Number of the source's items in the target now."""
    already_there: int = 0
    """Number of them moved by earlier attempts."""
    not_carried: tuple[NotCarried, ...] = ()
    reworded: tuple[int, ...] = ()
    """Places in the source of items that the target shows in another form, with the same meaning."""


class MoveInterruptedError(StoreError):
    """A move was interrupted. Repeat it with the same `conversation_id` to continue."""

    __module__ = "standfast"  # as of every other error: see `_src.base.errors`

    conversation_id: str = ""
    carried: int = 0


async def move_to_conversation(
    session: Session, *, client: object = None, conversation_id: str | None = None
) -> MoveReport:
    """Copy a session's history to a conversation of the server: a new one, or that of an earlier attempt.

    Raises UserError if that conversation has different items, and MoveInterruptedError if the move was interrupted.
    """
    conversations = edge("_src.sessions.backends.openai_conversations")
    remote = conversations.OpenAIConversationsSession(conversation_id=conversation_id, openai_client=client)
    try:
        items = [copy_json(item) for item in await session.get_items(limit=NO_LIMIT)]
        there = await remote.get_items(limit=NO_LIMIT)  # creates it, if there is none yet
        moving = _Moving(items, remote, lambda: conversations.OpenAIConversationsSession(openai_client=client))
        return await moving.move(there)
    finally:
        await remote.close()


async def move_to_session(conversation_id: str, session: HistoryWriter, *, client: object = None) -> MoveReport:
    """Bring a conversation of the server's home to a session, which is empty or was begun by an earlier attempt.

    On a session with exactly-once append it arrives in one step. Raises UserError if the session has something else.
    """
    conversations = edge("_src.sessions.backends.openai_conversations")
    remote = conversations.OpenAIConversationsSession(conversation_id=conversation_id, openai_client=client)
    try:
        items = [copy_json(item) for item in await remote.get_items(limit=NO_LIMIT)]
    finally:
        await remote.close()
    carried, left = select_carried(items, getattr(type(session), "refuses", None))
    wanted = [items[index] for index in carried]
    there = await session.get_items(limit=NO_LIMIT)
    known = _count_common_prefix(wanted, there)
    if known is None:
        raise UserError(
            f"the session has {len(there)} items that are not the beginning of conversation {conversation_id!r}",
            "Move it to an empty session. If you have gone on with this one since a move, it has the history already.",
        )
    writer, rest = f"move/{conversation_id}", [copy_json(item) for item in wanted[known:]]
    appending = with_ability(session, "append")
    if appending is not None and await appending.accepted(writer) == known:
        await appending.append(rest, writer=writer, start=known)
    else:  # a plain session, or one that was cleared since: what this writer brought then is not coming back
        await session.add_items(rest)
    after = await session.get_items(limit=NO_LIMIT)
    return MoveReport(conversation_id, len(wanted), known, tuple(left), find_reworded(items, carried, after))


class _Conversation(HistoryWriter, Protocol):
    """A server's conversation as needed for a move; a class of the edge implements it."""

    @property
    def session_id(self) -> str: ...

    @staticmethod
    def refuses(item: Item) -> str | None: ...

    async def pop_item(self) -> Item | None: ...

    async def clear_session(self) -> None: ...

    async def close(self) -> None: ...


class _Moving:
    """An attempt to move items to a conversation."""

    def __init__(self, items: list[Item], remote: _Conversation, scratch: Callable[[], _Conversation]) -> None:
        self.items, self.remote, self.scratch = items, remote, scratch
        self.refused: dict[int, str] = {}
        self.done = 0
        self._plan()

    def _plan(self) -> None:
        """Choose the items to move, without items that the service is known to refuse."""
        self.carried, self.left = select_carried(self.items, type(self.remote).refuses, self.refused)

    async def move(self, there: Sequence[Item]) -> MoveReport:
        conversation_id = self.remote.session_id
        try:
            known = await self._count_already_moved(there)
            self.done = known
            while self.done < len(self.carried):
                await self._step()
            after = await self.remote.get_items(limit=NO_LIMIT)
        except UserError:
            raise
        except StandfastError as error:
            raise _interrupted_error(conversation_id, self.done, len(self.carried), error) from error
        return MoveReport(
            conversation_id,
            len(self.carried),
            known,
            tuple(self.left),
            find_reworded(self.items, self.carried, after),
        )

    async def _count_already_moved(self, there: Sequence[Item]) -> int:
        """Count the items moved by an earlier attempt."""
        known = _count_common_prefix(self._items_to_move(), there)
        if known is None and there:  # that attempt may have learnt what the service refuses
            await self._learn(range(len(self.items)))
            known = _count_common_prefix(self._items_to_move(), there)
        if known is None:
            raise UserError(
                f"conversation {self.remote.session_id!r} has {len(there)} items that are not the beginning of this "
                "session",
                "Move it to a new conversation (leave conversation_id out), or name the one the move began.",
            )
        return known

    async def _step(self) -> None:
        """Move the next few items; a refused item stays behind, together with all related items."""
        places = self.carried[self.done : self.done + CHUNK_ITEMS]
        try:
            await self.remote.add_items([copy_json(self.items[place]) for place in places])
        except ItemNotStorableError as error:
            before = self.carried[: self.done]
            if not await self._learn(places):
                raise  # each of them alone is taken: it is not about an item
            kept = count_equal(before, self.carried)
            await self._take_back(before[kept:], error)
            self.done = kept
        else:
            self.done += len(places)

    async def _learn(self, places: Sequence[int]) -> bool:
        """Try items in a trial conversation; return whether a new refusal was found."""
        trial = self.scratch()
        try:
            found = await _find_refused(trial, [place for place in places if place in self.carried], self.items)
        finally:
            await trial.clear_session()
            await trial.close()
        self.refused |= found
        self._plan()
        return bool(found)

    async def _take_back(self, places: Sequence[int], error: ItemNotStorableError) -> None:
        """Remove items moved before the refusal of a related item was known. They are the last of the conversation."""
        for place in reversed(places):
            popped = await self.remote.pop_item()
            if popped is None or not alike(self.items[place], popped):
                raise StoreError(
                    f"conversation {self.remote.session_id!r} is being written to by somebody else",
                    "Stop the other writer, and move the session to a new conversation.",
                ) from error

    def _items_to_move(self) -> list[Item]:
        return [self.items[place] for place in self.carried]


async def _find_refused(trial: HistoryWriter, places: Sequence[int], items: Sequence[Item]) -> dict[int, str]:
    """Find the items that the service refuses, with reasons, by trying halves."""
    if not places:
        return {}
    try:
        await trial.add_items([copy_json(items[place]) for place in places])
    except ItemNotStorableError as error:
        if len(places) == 1:
            return {places[0]: f"the service refuses it: {getattr(error.__cause__, 'message', error.what)}"}
        half = len(places) // 2
        return {**await _find_refused(trial, places[:half], items), **await _find_refused(trial, places[half:], items)}
    return {}


def _count_common_prefix(wanted: Sequence[Item], there: Sequence[Item]) -> int | None:
    """Count the wanted items already there, if they are a prefix; None otherwise."""
    if len(there) > len(wanted) or not all(alike(one, other) for one, other in zip(wanted, there, strict=False)):
        return None
    return len(there)


def _interrupted_error(conversation_id: str, done: int, total: int, error: StandfastError) -> MoveInterruptedError:
    interrupted = MoveInterruptedError(
        f"a move broke off: conversation {conversation_id!r} has {done} of {total} items or more ({error.what})",
        f"Repeat it with conversation_id={conversation_id!r}: it goes on from there. The session is unchanged.",
    )
    interrupted.conversation_id, interrupted.carried = conversation_id, done
    return interrupted
