"""Session over OpenAI's Conversations API.

The service takes at most twenty items in a request and lists at most a hundred, gives every item an id of its own,
and rewrites some of what it is given. This module keeps those limits, keeps the ids out of what callers see (A16), and
gives back the form that was most likely written: a user's text as a text. The client's own retries are off for
writes, for a silent second try could store a batch twice (A8). When an answer is lost, the conversation is listed
behind the last item known before: what is found there was stored, what is not was not.

What it cannot promise is said in `OpenAIConversationsSession.cannot`; it has none of the abilities of part B.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from standfast._src.base.errors import (
    InvalidSessionIdError,
    ItemNotStorableError,
    NotFoundError,
    OutcomeUnknownError,
    SessionBusyError,
    SessionClosedError,
    StandfastError,
    StoreUnavailableError,
    WrongLoopError,
)
from standfast._src.base.json_values import Item, copy_json, encode
from standfast._src.items.items import to_json_item
from standfast._src.models.error_reading import normalise_error
from standfast._src.models.outcome_query import alike
from standfast._src.models.providers.client import ClientHolder, OwnClients, default_client, default_key
from standfast._src.models.responses_format import PLACEHOLDER_ID
from standfast._src.models.retry import ModelRetryNormalizedError
from standfast._src.sessions.client.process_lock import ProcessLock
from standfast._src.sessions.protocol import (
    Session,
    SessionABC,
    SessionSettings,
    coerce_session_settings,
    effective_limit,
)

if TYPE_CHECKING:
    from openai import AsyncOpenAI

T = TypeVar("T")

BATCH_ITEMS_MAX = 20
PAGE_ITEMS_MAX = 100
# The service's own limits: on what one request may create, and on what one page may show.

REFUSED_RETRIES_MAX = 3
REFUSED_WAIT_S = 0.5
REFUSED_WAIT_S_MAX = 30.0
# A busy conversation or a rate limit passes; a refused request was not taken, so asking again is safe.

ID_IS_PART_OF = frozenset(
    {
        "reasoning",
        "compaction",
        "file_search_call",
        "web_search_call",
        "computer_call",
        "code_interpreter_call",
        "image_generation_call",
        "local_shell_call",
        "local_shell_call_output",
        "mcp_list_tools",
        "mcp_approval_request",
        "mcp_call",
        "item_reference",
        "program",
        "program_output",
    }
)
"""Kinds of items that the service refuses without the id it gave them; the ids of all others are its own affair."""


class _NoConversationYetError(InvalidSessionIdError, AttributeError):
    """Raised when the session's id is read before the first use.

    An AttributeError too, because `isinstance(session, Session)` reads the attribute on Python 3.11 and takes only that
    for "not there"; as a ValueError alone it would come out of the isinstance.
    """


class OpenAIConversationsSession(SessionABC):
    """History in an OpenAI conversation, created at the first use unless an id is given.

    `session_id` is the conversation's id and raises a ValueError as long as there is none.

    Args:
        conversation_id: An existing conversation; left out, a new one.
        openai_client: The client; left out, that of `set_default_openai_client`, else one of its own. Only its own is
            closed.
        session_settings: Settings such as the default limit of reads.
    """

    cannot: ClassVar[tuple[str, ...]] = (
        f"A5: that no reader sees part of a batch of more than {BATCH_ITEMS_MAX} items while it is being written; if it"
        " fails part-way, what was written is deleted again, or OutcomeUnknownError says that it could not be.",
        "A6: that a request whose answer was lost does not arrive later than the listing that settled it.",
        "A11, A13: that a pop whose answer was lost can be settled (OutcomeUnknownError says so), or that one cancelled"
        " while its deletion was under way leaves the item.",
        "A12: that the id stays: clearing deletes the conversation, and the next use begins a new one with a new id.",
        "A17: that an item comes back equal: the service writes text as parts, adds a status and refuses fields it does"
        " not know. What it means is kept; a reasoning item with neither an id nor encrypted content is not stored.",
        "B: none of the abilities; a run uses it as a plain session (C12, C13 say what that means).",
    )
    """What this session cannot promise, by contract clause."""

    def __init__(
        self,
        *,
        conversation_id: str | None = None,
        openai_client: AsyncOpenAI | None = None,
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        self._id = conversation_id
        self._given = openai_client if openai_client is not None else default_client()
        own = None if self._given is not None else OwnClients(api_key=default_key())
        self._own, self._clients = own, ClientHolder(self._given, own)
        self.session_settings = coerce_session_settings(session_settings)
        self._loop: weakref.ref[asyncio.AbstractEventLoop] | None = None
        self._starting: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = weakref.WeakKeyDictionary()
        self._guard = Lock()
        self._closed = False
        self._writes: set[asyncio.Task[None]] = set()
        # One change at a time: batches of several requests must not mix, and what another task added meanwhile must not
        # be taken for an equal batch whose answer was lost.
        self._changing = ProcessLock()

    @staticmethod
    def refuses(item: Item) -> str | None:
        """Return the reason why the service cannot keep an item, or None. `add_items` leaves a refused item out."""
        if _sendable(item) is None:
            return "reasoning with neither an id nor encrypted content cannot be kept by a conversation"
        return None

    # --- identity ------------------------------------------------------------------------------------------------

    @property
    def session_id(self) -> str:
        """Return the conversation's id; raise a ValueError before the first use."""
        if self._id is None:
            raise _NoConversationYetError(
                "this session has no conversation yet",
                "Use it once (get_items, add_items), or give it a conversation_id; "
                "start_openai_conversations_session() makes one.",
            )
        return self._id

    @session_id.setter
    def session_id(self, value: str) -> None:
        self._id = value

    async def _conversation(self) -> str:
        """Return the conversation's id; create the conversation if needed."""
        if self._id is not None:
            return self._id
        loop = asyncio.get_running_loop()
        async with self._starting.setdefault(loop, asyncio.Lock()):
            if self._id is None:
                made = await start_openai_conversations_session(self._client(writing=True))
                with self._guard:
                    if self._id is None:
                        self._id = made
            return self._id

    # --- the five methods ------------------------------------------------------------------------------------------

    async def get_items(self, limit: int | None = None) -> list[Item]:
        """The whole history, or the latest `limit` items; oldest first."""
        wanted = effective_limit(limit, self.session_settings)
        if wanted == 0:
            return []
        conversation = await self._conversation()
        listed = await self._run_read(lambda client: _list_items(client, conversation, wanted))
        return [_strip_service_fields(item) for item in listed]

    async def add_items(self, items: list[Item]) -> None:
        """Append one batch in order: store every item or raise. See `cannot` for more than twenty items."""
        batch = [form for form in map(_sendable, items) if form is not None]
        if not batch:
            return
        # A task of its own: a cancelled caller gets control back at once, and the batch is still written whole.
        begun = asyncio.Event()
        write = asyncio.ensure_future(self._add_in_turn(batch, begun))
        self._writes.add(write)
        write.add_done_callback(self._wrote)
        try:
            await asyncio.shield(write)
        except asyncio.CancelledError:
            if not begun.is_set():
                write.cancel()  # it still waits its turn: withdrawn, and never done later (A13)
            raise

    async def _add_in_turn(self, batch: list[Item], begun: asyncio.Event) -> None:
        async with self._changing:
            begun.set()
            await self._add(batch)

    async def _add(self, batch: list[Item]) -> None:
        conversation = await self._conversation()
        last = await self._newest_id(conversation)
        created: list[str] = []
        for start in range(0, len(batch), BATCH_ITEMS_MAX):
            part = batch[start : start + BATCH_ITEMS_MAX]
            try:
                created += await self._create(conversation, part, created[-1] if created else last)
            except StandfastError as error:
                await self._take_back(conversation, created, error)
                raise

    def _wrote(self, write: asyncio.Task[None]) -> None:
        self._writes.discard(write)
        if not write.cancelled():
            write.exception()  # the caller had it, or was cancelled and wants none

    async def pop_item(self) -> Item | None:
        """Remove and return the newest item; return None from an empty session."""
        async with self._changing:
            return await self._pop()

    async def _pop(self) -> Item | None:
        conversation = await self._conversation()
        while True:
            newest = await self._run_read(lambda client: _list_items(client, conversation, 1))
            if not newest:
                return None
            if await self._delete(conversation, str(newest[0]["id"])):
                return _strip_service_fields(newest[0])
            # Another worker took this one between the two requests: the next newest is ours.

    async def clear_session(self) -> None:
        """Delete the conversation with all items. The next use begins a new conversation with a new id."""
        self._check_open()
        async with self._changing:
            await self._clear()

    async def _clear(self) -> None:
        if self._id is None:
            return
        conversation = self._id
        try:
            await self._run_write(lambda client: client.conversations.delete(conversation), "deleting the conversation")
        except NotFoundError:
            pass  # already deleted, as the caller asked
        self._id = None

    async def close(self) -> None:
        """Close the session's own client; leave a given client open. A second call does nothing."""
        if not self._closed:
            here = asyncio.get_running_loop()
            writes = [write for write in self._writes if write.get_loop() is here]  # another loop ends its own
            await asyncio.gather(*writes, return_exceptions=True)
            self._closed = True
            if self._own is not None:
                await self._own.aclose()

    # --- writing -------------------------------------------------------------------------------------------------

    async def _create(self, conversation: str, part: list[Item], after: str) -> list[str]:
        """Create up to twenty items behind `after` and return their ids, once, whatever happens to the answer."""
        try:
            page = await self._run_write(
                lambda client: client.conversations.items.create(conversation, items=list[Any](part)),
                "adding items",
            )
            return [str(item.id) for item in page.data]
        except OutcomeUnknownError as unknown:
            found = await self._find_after(conversation, part, after, unknown)
            if found is None:
                raise StoreUnavailableError(
                    f"adding items to conversation {conversation!r} failed, and the service does not have them",
                    "Add them again.",
                ) from unknown.__cause__
            return found

    async def _find_after(
        self, conversation: str, part: Sequence[Item], after: str, unknown: OutcomeUnknownError
    ) -> list[str] | None:
        """Return the ids of the given items if stored right after `after`; otherwise None."""
        try:
            listed = await self._run_read(lambda client: _list_items_after(client, conversation, after))
        except StandfastError as error:
            unknown.add_note(f"Asking the service what it has failed too: {error}")
            raise unknown from error
        for start in range(len(listed) - len(part) + 1):
            candidates = listed[start : start + len(part)]
            if all(alike(sent, stored) for sent, stored in zip(part, candidates, strict=True)):
                return [str(item["id"]) for item in candidates]
        return None

    async def _take_back(self, conversation: str, created: list[str], error: BaseException) -> None:
        """Delete the items of a failed batch, newest first; raise OutcomeUnknownError if a deletion fails."""
        for place, item_id in enumerate(reversed(created)):
            try:
                await self._delete(conversation, item_id)
            except StandfastError as trouble:
                left = len(created) - place
                raise OutcomeUnknownError(
                    f"a batch was stored only in part: {left} of its items stand in conversation {conversation!r} and "
                    f"could not be deleted ({trouble})",
                    f"Delete the items {created[:left]} there, then add the batch again.",
                ) from error

    async def _delete(self, conversation: str, item_id: str) -> bool:
        """Delete one item; return False if the service had already deleted the item."""
        try:
            await self._run_write(
                lambda client: client.conversations.items.delete(item_id, conversation_id=conversation),
                "deleting an item",
            )
        except NotFoundError:
            return False
        return True

    async def _newest_id(self, conversation: str) -> str:
        newest = await self._run_read(lambda client: _list_items(client, conversation, 1))
        return str(newest[0]["id"]) if newest else ""

    # --- asking --------------------------------------------------------------------------------------------------

    async def _run_read(self, ask: Callable[[AsyncOpenAI], Awaitable[T]]) -> T:
        client = self._client(writing=False)
        try:
            return await ask(client)
        except Exception as error:
            raise self._failure(error, "reading") from error

    async def _run_write(self, ask: Callable[[AsyncOpenAI], Awaitable[T]], what: str) -> T:
        client = self._client(writing=True)
        for attempt in range(REFUSED_RETRIES_MAX + 1):
            try:
                return await ask(client)
            except Exception as error:
                failure = normalise_error(error)
                if attempt == REFUSED_RETRIES_MAX or not _passes(failure):
                    raise self._failure(error, what, writing=True) from error
                await asyncio.sleep(_wait_s(failure, attempt))
        raise AssertionError("unreachable")

    def _client(self, *, writing: bool) -> AsyncOpenAI:
        self._check_open()
        if self._given is not None:
            loop = asyncio.get_running_loop()
            if self._loop is None:
                self._loop = weakref.ref(loop)
            if self._loop() is not loop:
                raise WrongLoopError(
                    "the OpenAI client of this session belongs to another event loop",
                    "Make a client for each loop, or let the session make its own.",
                )
        return self._clients.get(retries=not writing)

    def _check_open(self) -> None:
        if self._closed:
            raise SessionClosedError("this session is closed", "Make a new one with the same conversation_id.")

    def _failure(self, error: Exception, what: str, *, writing: bool = False) -> StandfastError:
        if isinstance(error, StandfastError):
            return error
        failure = normalise_error(error)
        status = failure.status_code
        where = f"{what} in conversation {self._id!r}"
        if status == 404:
            return NotFoundError(
                f"{where} found nothing: {error}", "It was deleted, perhaps by another worker; begin a new session."
            )
        if failure.error_code == "conversation_locked":
            return SessionBusyError(f"{where} was refused: another request is active on it", "Try again later.")
        if status in (400, 413, 422):
            return ItemNotStorableError(f"{where} was refused: {error}", "Change what the service does not take.")
        if status is not None and status < 500:
            return StoreUnavailableError(f"{where} was refused: {error}", "Check the key, its rights and its limits.")
        if writing and not failure.never_sent:
            return OutcomeUnknownError(
                f"{where} lost its answer: {error}", "Read the conversation to see what it has before writing again."
            )
        return StoreUnavailableError(f"{where} failed: {error}", "Try again when the service can be reached.")


# Before its first use a session has no id, and Python 3.11 would say that this is not a Session.
Session.register(OpenAIConversationsSession)


async def start_openai_conversations_session(openai_client: AsyncOpenAI | None = None) -> str:
    """Create an empty conversation and return its id."""
    given = openai_client if openai_client is not None else default_client()
    own = OwnClients(api_key=default_key()) if given is None else None
    client = given if given is not None else own() if own is not None else None
    assert client is not None
    try:
        conversation = await client.conversations.create(items=[])
    finally:
        if own is not None:
            await own.aclose()
    return str(conversation.id)


# --- forms -----------------------------------------------------------------------------------------------------------


def _sendable(item: Item) -> Item | None:
    """Return an item in the service's form; None if the service cannot keep the item."""
    encode(item)  # refuses what is not JSON (A17), before anything is sent
    form: Item = copy_json(item)
    form.pop("provider_data", None)
    if "status" in form and form["status"] is None:
        del form["status"]
    kind = form.get("type", "message")
    if form.get("id") in (PLACEHOLDER_ID, None, "") or kind not in ID_IS_PART_OF:
        form.pop("id", None)
    if kind == "reasoning" and "id" not in form and not form.get("encrypted_content"):
        return None
    return form


def _strip_service_fields(stored: Item) -> Item:
    """Remove the service's own fields from a listed item and restore the form most likely written."""
    form = {name: value for name, value in stored.items() if value is not None and name != "created_by"}
    kind = form.get("type", "message")
    if kind not in ID_IS_PART_OF:
        form.pop("id", None)
    if kind == "message" and form.get("role") != "assistant":
        form.pop("status", None)
        parts = form.get("content")
        if isinstance(parts, list) and len(parts) == 1 and set(parts[0]) == {"type", "text"}:
            return {"role": form["role"], "content": parts[0]["text"]}
    elif kind.endswith("_output"):
        form.pop("status", None)
    return form


async def _list_items(client: AsyncOpenAI, conversation: str, limit: int | None) -> list[Item]:
    """List the latest `limit` items (None: all) in the service's form, oldest first, in the largest possible pages."""
    if limit is None:
        return await _list_items_after(client, conversation, "")
    found: list[Item] = []
    size = min(limit, PAGE_ITEMS_MAX)
    async for item in client.conversations.items.list(conversation, order="desc", limit=size):
        found.append(to_json_item(item))
        if len(found) == limit:
            break
    return found[::-1]


async def _list_items_after(client: AsyncOpenAI, conversation: str, after: str) -> list[Item]:
    query: dict[str, Any] = {"order": "asc", "limit": PAGE_ITEMS_MAX} | ({"after": after} if after else {})
    return [to_json_item(item) async for item in client.conversations.items.list(conversation, **query)]


# --- errors ----------------------------------------------------------------------------------------------------------


def _passes(failure: ModelRetryNormalizedError) -> bool:
    return failure.status_code == 429 or failure.error_code == "conversation_locked"


def _wait_s(failure: ModelRetryNormalizedError, attempt: int) -> float:
    if failure.retry_after is not None:
        return min(REFUSED_WAIT_S_MAX, failure.retry_after)
    return REFUSED_WAIT_S * float(2**attempt)
