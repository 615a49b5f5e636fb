"""Mistakes in what a whole store shows, and in deciding about its runs (B16, B17)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from typing import Any

from msgspec.structs import replace as changed

from standfast import InMemoryStore
from standfast._kits.operators.run_view import RunView
from standfast._kits.operators.store import SessionListing, Store, StoreUsage, store_of
from standfast._src.sessions.records import SearchPage
from standfast._src.sessions.storage import CommitRequest, Done, KeyUpdate, Refused
from tests.conformance.kit_backends import Memory
from tests.conformance.mistakes.mistake import BROKEN, Mistake


def breaks(clause: str, check: str) -> Callable[[type[Store]], type[Store]]:
    """Register memory with a store of this class as the mistake its docstring tells."""

    def register(kind: type[Store]) -> type[Store]:
        class Wrong(Memory):
            name = str(kind.__doc__).splitlines()[0].rstrip(".")

            def whole_store(self, *, read_only: bool = False) -> Store:
                right = store_of(self.open, self.name, read_only=read_only)
                right.__class__ = kind  # what the right one is made of, with the mistake of this class
                return right

        BROKEN.append(Mistake(Wrong(), clause, check))
        return kind

    return register


@breaks("B16", "sessions_are_listed_with_what_a_person_wants_to_see")
class CountsOnlyTheFirst(Store):
    """counts the items of the first session of a page only."""

    async def sessions(self, **given: Any) -> SessionListing:
        page = await super().sessions(**given)
        return replace(page, sessions=[*page.sessions[:1], *(replace(one, item_count=1) for one in page.sessions[1:])])


@breaks("B16", "a_listing_is_filtered_by_prefix_and_by_time")
class FiltersAfterThePage(Store):
    """filters a page that it has read already."""

    async def sessions(
        self, *, prefix: str = "", changed_since: datetime | None = None, **given: Any
    ) -> SessionListing:
        page = await super().sessions(changed_since=changed_since, **given)
        found = [one for one in page.sessions if one.session_id.startswith(prefix)]
        return SessionListing(found, page.after if found else None)


@breaks("B16", "a_search_of_a_whole_store_misses_nothing_and_doubles_nothing")
class LosesItsPlace(Store):
    """begins a search of the next page behind the session it was in, twice."""

    async def search(self, text: str, **given: Any) -> SearchPage:
        page = await super().search(text, **given)
        return page if len(page.hits) != 1 or page.after is None else await super().search(text, after=page.after)


@breaks("B16", "what_all_sessions_cost_is_summed")
class CountsEverySession(Store):
    """counts sessions that cost nothing."""

    async def usage(self) -> StoreUsage:
        found = await super().usage()
        return replace(found, sessions=(await self.counts()).sessions)


@breaks("B16", "a_store_that_is_only_read_refuses_every_change_and_leaves_no_trace")
class ReadsAndWrites(Store):
    """takes a lease away in a store that is only read."""

    async def unlock(self, session_id: str) -> int:
        session = self.session(session_id)
        session.read_only = False
        return await session.revoke_lease()


class LeavesBoxesOut(InMemoryStore):
    def commit(self, step: CommitRequest) -> Done | Refused:
        return super().commit([_without_boxes(change) for change in step])


def _without_boxes(change: KeyUpdate) -> KeyUpdate:
    return change if change.load is None else changed(change, load=change.load._replace(boxes={}))


class ForgetsGenerations(Memory):
    name = "leaves out what is kept of a session that is brought"

    @cached_property
    def store(self) -> InMemoryStore:
        return LeavesBoxesOut()


BROKEN.append(Mistake(ForgetsGenerations(), "B16", "a_session_that_was_copied_away_and_back_is_the_same"))


@breaks("B17", "a_run_that_waits_is_seen_and_listed")
class ShowsEverything(Store):
    """lists every session as one in which something waits."""

    async def sessions(self, *, waiting: bool = False, **given: Any) -> SessionListing:
        return await super().sessions(**given)


@breaks("B17", "a_decision_says_who_and_when_and_makes_the_run_ready")
class ForgetsWho(Store):
    """signs every decision with its own name."""

    async def decide(self, run_id: str, call_id: str, approve: bool, **given: Any) -> RunView:
        return await super().decide(run_id, call_id, approve, **{**given, "by": "the console"})


@breaks("B17", "of_many_who_decide_one_is_heard_and_the_others_are_told")
class SaysYesToAll(Store):
    """does not tell the second who decides."""

    async def decide(self, run_id: str, call_id: str, approve: bool, **given: Any) -> RunView:
        try:
            return await super().decide(run_id, call_id, approve, **given)
        except Exception:
            return await self.run(run_id)


@breaks("B17", "what_does_not_wait_cannot_be_decided")
class IgnoresArguments(Store):
    """does not compare what was shown with what waits."""

    async def decide(self, run_id: str, call_id: str, approve: bool, **given: Any) -> RunView:
        given.pop("arguments", None)
        return await super().decide(run_id, call_id, approve, **given)


@breaks("B17", "a_run_that_is_given_up_leaves_a_whole_turn")
class DeletesWhatIsGivenUp(Store):
    """deletes a run that is given up, with its open turn."""

    async def cancel(self, run_id: str, *, by: str, reason: str | None = None) -> RunView:
        view = await self.run(run_id)
        await self._runs.delete_run(run_id)
        return replace(view, status="cancelled")
