"""Methods of a stored session for messages: send, receipts, the waiting ones (F1)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar, get_args
from uuid import uuid4

from standfast._src.base.errors import InvalidSettingError
from standfast._src.base.json_values import Item
from standfast._src.base.operational_events import emit
from standfast._src.runs.engine.codec import RunRecord
from standfast._src.runs.engine.run import Owner, begin
from standfast._src.runs.engine.run_store import check_run_id
from standfast._src.sessions.client.arguments import encoded_of
from standfast._src.sessions.item_sizes import item_bytes_max
from standfast._src.sessions.protocol import SessionSettings
from standfast._src.sessions.rules import messages
from standfast._src.sessions.rules.messages import Receipt, Sending, WaitingMessage, WhenBusy, content_digest
from standfast._src.sessions.rules.saved_runs import RunSave
from standfast._src.sessions.storage import Name, Plan

T = TypeVar("T")


class MessageMethods(ABC):
    """Ability `send` of a session over a store of the port."""

    session_id: str
    session_settings: SessionSettings | None
    _name: Name

    @abstractmethod
    def _read(self, plan: Callable[[], Plan[T]]) -> Coroutine[Any, Any, T]:
        """Carry out a reading plan."""

    @abstractmethod
    def _write(self, plan: Callable[[], Plan[T]]) -> Coroutine[Any, Any, T]:
        """Carry out a changing plan."""

    async def send(
        self,
        message: str | list[Item],
        *,
        agent: str,
        message_id: str | None = None,
        when_busy: WhenBusy = "steer",
        by: str | None = None,
        max_turns: int | None = 10,
    ) -> Receipt:
        """Send a message to the conversation in any state: heard once, also across crashes (F1).

        A run under way hears the message before its next request; else a worker (`Runner.recover`) begins a run of
        `agent`. A repeat under the same `message_id` returns the receipt and is not heard again. `when_busy`: "queue"
        waits for the next run, "interrupt" too and asks the run under way to stop after its turn, "reject" raises
        SessionBusyError while a run holds the session. Raises SessionConflictError for a used id with other content.
        """
        if when_busy not in get_args(WhenBusy):
            raise InvalidSettingError(
                f"when_busy={when_busy!r} is unknown", "Use 'steer', 'queue', 'interrupt' or 'reject'."
            )
        given: Sequence[Item] = [{"role": "user", "content": message}] if isinstance(message, str) else message
        items = list(given)
        if not encoded_of(items, item_bytes_max(self.session_settings)):
            raise InvalidSettingError("a message without items says nothing", "Send a text, or a list of input items.")
        message_id = check_run_id(uuid4().hex if message_id is None else message_id)
        said = {"when_busy": when_busy} | ({} if by is None else {"by": by})
        run = begin(
            run_id=message_id,
            agent=agent,
            input_items=items,
            owner=Owner("session", self.session_id),
            max_turns=max_turns,
            verdict="blocking",
            input_is_text=isinstance(message, str),
            message=said,
        )
        record = RunRecord(run)
        save = RunSave(message_id, 0, record.head(), record.tails({}), record.status, record.agent, self.session_id)
        wanted = Sending(save, content_digest(items), when_busy, uuid4().hex)
        receipt = await self._write(partial(messages.send, self._name, wanted))
        if receipt.is_new:
            emit("message_sent", message=message_id, session=self.session_id)
        return receipt

    async def receipt(self, message_id: str) -> Receipt | None:
        """Return the receipt of a message; None for an unknown id (F1)."""
        return await self._read(partial(messages.read_receipt, self._name, message_id))

    async def waiting_messages(self) -> list[WaitingMessage]:
        """List the waiting messages in the order of sending (F1)."""
        return await self._read(partial(messages.list_waiting, self._name))
