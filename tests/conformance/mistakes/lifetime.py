"""Mistakes in closing, expiry, resources, threads and loops."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from typing import Any

from standfast._kits.conformance.reference_session import ReferenceSession, ReferenceStore
from tests.conformance.kit_backends import Reference
from tests.conformance.mistakes.mistake import BROKEN, Items, Mistake, breaks


@breaks("A19", "closing_twice_is_allowed_and_use_after_it_says_so")
class WorksAfterClose(ReferenceSession):
    """works after it was closed."""

    async def close(self) -> None:  # type: ignore[override]
        pass


@breaks("A19", "closing_takes_effect_when_called_without_a_loop")
class ClosesWhenAwaited(ReferenceSession):
    """closes only when that is awaited."""

    def close(self) -> Any:
        class Later:
            def __await__(later) -> Any:  # noqa: N805 — self is the session
                yield from ()
                self._closed = True

        return Later()


class ClosesWhatWasHandedIn(Reference):
    name = "closes what was handed in"

    def handed_in(self, session_id: str) -> Any:
        store = ReferenceStore()

        async def still_works() -> None:
            if not store.conversations:
                raise RuntimeError("the store that was handed in is closed")

        class Greedy(ReferenceSession):
            def close(self) -> Any:
                store.conversations.clear()
                return super().close()

        return Greedy(session_id, store=store), still_works


BROKEN.append(Mistake(ClosesWhatWasHandedIn(), "A19", "closing_leaves_alone_what_was_handed_in"))


class ExpiringSession(ReferenceSession):
    """A session whose history expires some seconds after its latest change; right, and the base of a wrong one."""

    seconds = 0.0
    renews = True
    forgets_counts = True

    async def add_items(self, items: Items) -> None:
        await self._expire()
        await super().add_items(list(items))
        if items and (self.renews or "until" not in self.store.__dict__):
            self.store.__dict__["until"] = time.monotonic() + self.seconds

    async def append(self, items: Items, **given: Any) -> Any:
        await self._expire()
        return await super().append(items, **given)

    async def get_items(self, limit: int | None = None) -> list[Any]:
        await self._expire()
        return await super().get_items(limit)

    async def _expire(self) -> None:
        if time.monotonic() > self.store.__dict__.get("until", time.monotonic() + 1):
            del self.store.__dict__["until"]
            await self.clear_session()  # which leaves the lease and its number, and counts
            for talk in self.store.conversations.values() if self.forgets_counts else ():
                talk.writers.clear()


class Expires(Reference):
    name = "expires"
    not_applicable: Mapping[str, str] = {}
    kind: type[ExpiringSession] = ExpiringSession

    def expiring(self, session_id: str, seconds: int) -> Any:
        session = self.kind(session_id, store=self.store)
        session.seconds = seconds
        return session


class _NeverRenewed(ExpiringSession):
    renews = False


class ExpiryIsNotRenewed(Expires):
    name = "does not renew the expiry"
    kind = _NeverRenewed


BROKEN.append(Mistake(ExpiryIsNotRenewed(), "A20", "an_expiry_is_renewed_by_changes_and_takes_everything"))


class _TakesTheLease(ExpiringSession):
    async def _expire(self) -> None:
        if time.monotonic() > self.store.__dict__.get("until", time.monotonic() + 1):
            del self.store.__dict__["until"]
            self.store.conversations.clear()


class ExpiryTakesTheLease(Expires):
    name = "forgets who holds it when it expires"
    kind = _TakesTheLease


BROKEN.append(Mistake(ExpiryTakesTheLease(), "B7", "a_lease_is_held_though_the_history_expires"))


class _KeepsCounts(ExpiringSession):
    forgets_counts = False


class CountsOutliveTheExpiry(Expires):
    name = "takes for a repeat what begins anew after an expiry"
    kind = _KeepsCounts


BROKEN.append(Mistake(CountsOutliveTheExpiry(), "B7", "a_lease_is_held_though_the_history_expires"))


@breaks("A21", "many_session_objects_hold_a_constant_number_of_descriptors_and_threads")
class OneDescriptorEach(ReferenceSession):
    """opens a descriptor per object."""

    def __init__(self, session_id: str, **options: Any) -> None:
        super().__init__(session_id, **options)
        self._descriptor = os.open(os.devnull, os.O_RDONLY)


@breaks("A22", "a_session_works_in_one_event_loop_after_another")
class BoundToItsLoop(ReferenceSession):
    """belongs to the first loop it is used in."""

    _loop: Any = None

    async def add_items(self, items: Items) -> None:
        self._loop = self._loop or asyncio.get_running_loop()
        done = self._loop.create_future()
        self._loop.call_soon_threadsafe(done.set_result, None)
        await done
        await super().add_items(list(items))


@breaks("A22", "a_loop_that_ends_in_the_middle_of_a_call_leaves_nothing_behind", patience_s=20)
class WaitsForALoopThatEnded(ReferenceSession):
    """waits for a task that ended with its loop."""

    async def add_items(self, items: Items) -> None:
        before = self.store.__dict__.get("last")
        mine = self.store.__dict__["last"] = asyncio.get_running_loop().create_future()
        if before is not None and not before.done():
            await asyncio.wait([before])
        await asyncio.sleep(0)
        await super().add_items(list(items))
        mine.set_result(None)


@breaks("A22", "a_session_object_works_in_several_threads_at_once")
class NotForThreads(ReferenceSession):
    """keeps what it is doing in the object."""

    _busy = False

    async def add_items(self, items: Items) -> None:
        if self._busy:
            raise RuntimeError("this session is in use")
        self._busy = True
        await asyncio.sleep(0.001)
        await super().add_items(list(items))
        self._busy = False


@breaks("A22", "after_a_fork_parent_and_child_go_on")
class RefusesInAFork(ReferenceSession):
    """cannot be used after a fork."""

    def __init__(self, session_id: str, **options: Any) -> None:
        super().__init__(session_id, **options)
        self._pid = os.getpid()

    async def add_items(self, items: Items) -> None:
        if os.getpid() != self._pid:
            raise RuntimeError("made in another process")
        await super().add_items(list(items))
