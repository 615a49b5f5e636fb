"""`AdvancedSQLiteSession`: branches, turns, costs and tools of each turn, over any SQLite session.

The methods and their results are those of the OpenAI Agents SDK's class of this name. A branch is a fork, so every
ability holds on each branch. The cost of a run is kept by the run itself (B15); turns and tools are read from the
items.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Hashable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Concatenate, ParamSpec, Protocol, Self, TypeVar
from uuid import uuid4

from standfast._src.base.errors import InvalidNameError, InvalidSettingError, SessionBusyError, StandfastError
from standfast._src.base.json_values import Item
from standfast._src.base.logs import session_logger
from standfast._src.items.usage import Usage
from standfast._src.sessions.backends.sqlite import database_file
from standfast._src.sessions.backends.sqlite.schema import Tables
from standfast._src.sessions.backends.sqlite.sqlite_session import SQLiteSession
from standfast._src.sessions.backends.sqlite.values import now_text
from standfast._src.sessions.client.executor import Executor
from standfast._src.sessions.client.lingering import LINGER_S
from standfast._src.sessions.protocol import SessionSettings, effective_limit
from standfast._src.sessions.rules import history
from standfast._src.sessions.storage import Name, Plan, ReadRequest, Rows
from standfast._src.sessions.wrappers.branches import branch_rules, turn_costs
from standfast._src.sessions.wrappers.branches.branch_rules import BranchExecutor, Pointer
from standfast._src.sessions.wrappers.branches.sdk_structure import EXPECTED, MADE
from standfast._src.sessions.wrappers.branches.turns import (
    MAIN,
    PREVIEW_CHARACTERS,
    by_turns,
    is_user,
    preview,
    says,
    tool_uses,
)

__all__ = ["AdvancedSQLiteSession"]

T = TypeVar("T")
P = ParamSpec("P")


class _HasUsage(Protocol):
    @property
    def usage(self) -> Usage | None: ...


class RunWithUsage(Protocol):
    """A run's result, as far as its cost goes."""

    @property
    def context_wrapper(self) -> _HasUsage: ...


class AdvancedSQLiteSession(SQLiteSession):
    """Conversation in an SQLite file with branches from any turn, and with the cost of each turn.

    A session object is on one branch, `main` at first; a later object begins on the last selected branch.

    Args:
        session_id: The name of the conversation.
        db_path: The file; `:memory:` (the default) ends with the last object.
        create_tables: True to make the SDK's missing tables of branches and turns, so that the SDK can read the main
            branch; without it the tables have to exist.
        logger: Gets a record for each created, selected and deleted branch.
        session_settings: Settings such as the default limit of reads.
        sessions_table: The table of sessions, as the OpenAI Agents SDK names it.
        messages_table: The table of items, as the OpenAI Agents SDK names it.
        timeout_s: The deadline of each operation.
        file_mode: The permissions of a new file; by default only its owner may read it.
        linger_s: The seconds that threads and connections stay open after the last session object on the file, for the
            next one; 0: they end with the last.
    """

    # Reading a branch by its name and clearing all of them take nothing away from what every session can do.
    declared_abilities: ClassVar[frozenset[str]] = SQLiteSession.declared_abilities

    def __init__(
        self,
        *,
        session_id: str,
        db_path: str | Path = database_file.MEMORY,
        create_tables: bool = False,
        logger: logging.Logger | None = None,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        sessions_table: str = "agent_sessions",
        messages_table: str = "agent_messages",
        timeout_s: float = 30.0,
        file_mode: int | None = None,
        linger_s: float = LINGER_S,
    ) -> None:
        super().__init__(
            session_id,
            db_path,
            sessions_table,
            messages_table,
            session_settings,
            timeout_s=timeout_s,
            file_mode=file_mode,
            linger_s=linger_s,
        )
        self._plain_tables = self._tables
        self._creates_tables = create_tables
        self._tables = Tables.of(sessions_table, messages_table, MADE if create_tables else EXPECTED)
        self._log = logger or session_logger
        self._pointer = Pointer()

    # --- the branch that everything is about -------------------------------------------------------------------------

    def _carrier(self) -> Executor:
        return BranchExecutor(self._engine(), self._name, self._pointer)

    def _another(self, new_id: str) -> Self:
        made = type(self)(
            session_id=new_id,
            db_path=self.db_path if self._path is None else self._path,
            create_tables=self._creates_tables,
            logger=self._log,
            session_settings=self._copied_settings(),
            sessions_table=self.sessions_table,
            messages_table=self.messages_table,
            timeout_s=self.timeout_s,
            file_mode=self.file_mode,
            linger_s=self.linger_s,
        )
        self._share_with(made)
        return made

    def _store_key(self) -> Hashable:
        if self._path is None:
            return (id(self._engine()), self._plain_tables)
        return (os.path.realpath(self._path), self._plain_tables)

    async def _change_branches(
        self, plan: Callable[Concatenate[Name, P], Plan[T]], *values: P.args, **options: P.kwargs
    ) -> T:
        """Return the result of a plan about all branches, not redirected to one of them."""
        self._check_open()
        return await self._engine().carry(partial(plan, self._name, *values, **options), self.timeout_s)

    async def _read_branch(self, branch_id: str | None, rule: Callable[[Name, str], Plan[list[T]]]) -> list[T]:
        """Return the result of a read-only rule on a branch, by default the current one."""
        self._check_open()
        plan = partial(branch_rules.of_branch, self._name, self._pointer, self._pointer.at, branch_id, rule)
        return await self._engine().carry(plan, self.timeout_s, kind="read")

    def _check_no_run(self) -> None:
        """Raise SessionBusyError if a run holds the session through this object, before a change of branch.

        Otherwise the run's next items would be stored on the other branch, or nowhere, and its lease would never be
        released.
        """
        if any(lease.is_held for lease in list(self._leases)):
            raise SessionBusyError(
                f"a run is under way on session {self.session_id!r} by this object, and would end on another branch",
                "Wait until it has ended, or use another session object to change branches.",
            )

    # --- history -----------------------------------------------------------------------------------------------------

    async def get_items(self, limit: int | None = None, branch_id: str | None = None) -> list[Item]:
        """Return the whole history of a branch, or the latest `limit` items; oldest first. None: the current branch."""
        if branch_id is None:
            return await super().get_items(limit)
        wanted = effective_limit(limit, self.session_settings)
        return await self._read_branch(branch_id, lambda name, _: history.get_items(name, wanted, self._report))

    async def clear_session(self) -> None:
        """Remove everything stored for this id, all branches included, and select `main`."""
        if self._pointer.at is not None and self._pointer.at.branch != MAIN:
            self._check_no_run()
        self._pointer.at = await self._change_branches(branch_rules.clear)

    # --- branches ----------------------------------------------------------------------------------------------------

    async def create_branch_from_turn(self, turn_number: int, branch_name: str | None = None) -> str:
        """Make a branch of the items before a turn, and select it. Return its name.

        Raises ValueError for a missing turn, and for a name already used in this or another branch.
        """
        if branch_name is not None and not branch_name.strip():
            raise InvalidNameError("a branch needs a name", "Give one with letters, or None for a generated one.")
        self._check_no_run()
        name, source, self._pointer.at = await self._change_branches(
            branch_rules.fork_at_turn,
            self._pointer,
            self._pointer.at,
            turn_number,
            branch_name,
            uuid4().hex,
            self._report,
        )
        self._log.debug("made branch %r from turn %s in %r", name, turn_number, source)
        return name

    async def create_branch_from_content(self, search_term: str, branch_name: str | None = None) -> str:
        """Make a branch from the first turn with these words, and select it. Return the name."""
        found = await self.find_turns_by_content(search_term)
        if not found:
            raise InvalidSettingError(
                f"no user turn contains {search_term!r}", "get_conversation_turns() shows what there is."
            )
        return await self.create_branch_from_turn(found[0]["turn"], branch_name)

    async def switch_to_branch(self, branch_id: str) -> None:
        """Select another branch. Objects made later begin there; existing objects stay on their branches."""
        self._check_no_run()
        self._pointer.at = await self._change_branches(branch_rules.switch, branch_id)
        self._log.info("switched to branch %r", branch_id)

    async def delete_branch(self, branch_id: str, force: bool = False) -> None:
        """Remove a branch and everything stored for it. Its name cannot be used again.

        Raises ValueError for `main`, for a missing branch, and, without `force`, for the current one.
        """
        if not branch_id or not branch_id.strip():
            raise InvalidNameError("a branch needs a name", "Give one of list_branches().")
        if branch_id == MAIN:
            raise InvalidSettingError("the main branch cannot be deleted", "clear_session() removes everything.")
        at = self._pointer.at
        if at is not None and at.branch == branch_id:
            self._check_no_run()
        self._pointer.at = await self._change_branches(branch_rules.delete, self._pointer, at, branch_id, force=force)
        self._log.info("deleted branch %r", branch_id)

    async def list_branches(self) -> list[dict[str, Any]]:
        """Return every branch: id, number of messages and turns, whether it is current, and its creation time."""
        self._check_open()
        plan = partial(branch_rules.list_branches, self._name, self._pointer, self._pointer.at, self._report)
        return [
            {
                "branch_id": one.branch,
                "message_count": one.item_count,
                "user_turns": one.turn_count,
                "is_current": one.is_current,
                "created_at": _as_text(one.made),
            }
            for one in await self._engine().carry(plan, self.timeout_s, kind="read")
        ]

    # --- turns -------------------------------------------------------------------------------------------------------

    async def get_conversation_turns(self, branch_id: str | None = None) -> list[dict[str, Any]]:
        """Return every turn of a branch: number, message and its beginning, and time."""
        return [
            _describe_turn(turn, content, at, PREVIEW_CHARACTERS) for turn, content, at in await self._turns(branch_id)
        ]

    async def find_turns_by_content(self, search_term: str, branch_id: str | None = None) -> list[dict[str, Any]]:
        """Return the turns with these words in their message, in any case."""
        found = await self._turns(branch_id)
        return [_describe_turn(turn, content, at, None) for turn, content, at in found if says(content, search_term)]

    async def get_conversation_by_turns(self, branch_id: str | None = None) -> dict[int, list[dict[str, str | None]]]:
        """For each turn of a branch, the type and the tool of each of its items."""
        return by_turns(await self._items(branch_id))

    async def get_tool_usage(self, branch_id: str | None = None) -> list[tuple[str, int, int]]:
        """Return the number of calls of each tool in each turn of a branch: (tool, count, turn)."""
        return tool_uses(await self._items(branch_id))

    async def _items(self, branch_id: str | None) -> list[Item]:
        """All items, whatever the session's default limit is."""
        return await self._read_branch(branch_id, lambda name, _: history.get_items(name, None, self._report))

    async def _turns(self, branch_id: str | None) -> list[tuple[int, Any, float | None]]:
        return await self._read_branch(branch_id, partial(_turns_of, self._report))

    # --- usage -------------------------------------------------------------------------------------------------------

    async def store_run_usage(self, result: RunWithUsage) -> None:
        """Store the cost of a run for the current turn. A run on this session has done so itself: then nothing changes.

        As with the SDK, a failure is logged and not raised: it must not break the program after its run has ended.
        """
        usage = result.context_wrapper.usage
        if usage is None:
            return
        run_id = getattr(result, "run_id", None)
        try:
            await self._write(partial(turn_costs.keep, self._name, usage, run_id if isinstance(run_id, str) else None))
        except StandfastError as error:
            self._log.error("what a run cost could not be kept with session %r: %s", self.session_id, error)

    async def get_session_usage(self, branch_id: str | None = None) -> dict[str, int] | None:
        """Return the cost and number of all turns of a branch (None: of all branches); None if nothing is kept."""
        if branch_id is not None:
            wanted = [branch_id]
        else:
            wanted = [branch["branch_id"] for branch in await self.list_branches()]
        spent = [await self._read_branch(one, partial(turn_costs.of_turns, self._name)) for one in wanted]
        return turn_costs.total([cost for costs in spent for cost in costs])

    async def get_turn_usage(
        self, user_turn_number: int | None = None, branch_id: str | None = None
    ) -> list[dict[str, Any]] | dict[str, Any]:
        """Return the cost of each turn of a branch, or of one given turn ({} if nothing is kept for it)."""
        found = await self._read_branch(branch_id, partial(turn_costs.of_turns, self._name))
        if user_turn_number is None:
            return [{"user_turn_number": cost.turn, **cost.to_sdk_dict()} for cost in found if cost.turn is not None]
        return next((cost.to_sdk_dict() for cost in found if cost.turn == user_turn_number), {})


def _turns_of(report: history.Report, name: Name, branch: str) -> Plan[list[tuple[int, Any, float | None]]]:
    """Each turn's number, the content of the person's message, and when that was."""
    sight = yield from history.look(ReadRequest(name, rows=(Rows(tags=False, times=True),), mark=False))
    times = {row.ref: at for row, at in zip(sight.rows[0], sight.times[0], strict=True)}
    said = [(row, item) for row, item in history.items_of(sight.rows[0], report) if is_user(item)]
    return [(turn, item.get("content", ""), times[row.ref]) for turn, (row, item) in enumerate(said, 1)]


def _describe_turn(turn: int, content: object, at: float | None, characters: int | None) -> dict[str, Any]:
    return {
        "turn": turn,
        "content": preview(content, characters),
        "full_content": content,
        "timestamp": _as_text(at),
        "can_branch": True,
    }


def _as_text(at: float | None) -> str | None:
    """A time as the SDK gives it: UTC, in whole seconds."""
    return None if at is None else now_text(at)[:19]
