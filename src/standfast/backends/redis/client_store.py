"""The same store over a `redis.asyncio` client that was handed in, awaited in that client's own event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import redis.exceptions as failed

from standfast.backends.redis import listing
from standfast.backends.redis.errors import refused, unanswered
from standfast.backends.redis.keys import Layout
from standfast.backends.redis.store import Codec, Command, meanings
from standfast.ground.errors import StandfastError
from standfast.sessions.port import Answer, Ask, Count, Listing, Look

# Answers must be bytes, whatever the client was made with: one record that is no text would else fail the whole read.
_RAW: dict[str, Any] = {"NEVER_DECODE": []}


class ClientStore(Codec):
    """A handed-in client as a store."""

    def __init__(self, client: Any, *, prefix: str, layout: Layout, ttl_ms: int | None) -> None:
        super().__init__(prefix=prefix, layout=layout, ttl_ms=ttl_ms)
        self._client = client
        self._loop: asyncio.AbstractEventLoop | None = None

    async def ask_many(self, questions: Sequence[Ask]) -> list[Answer | Exception]:
        """All of it in one write, but for listings, which take several round trips each."""
        together = [question for question in questions if not isinstance(question, Listing | Count)]
        asked = [self.asked(question) for question in together]
        reading = all(isinstance(question, Look) for question in together)
        found = await self._sent([one.command for one in asked], reading=reading)
        while more := self.again(together, asked, found):
            for place, got in zip(more, await self._sent(list(more.values()), reading=reading), strict=True):
                found[place] = got
        answers = iter(meanings(asked, found))
        return [
            await self._listed(question) if isinstance(question, Listing | Count) else next(answers)
            for question in questions
        ]

    async def _sent(self, commands: Sequence[Command], *, reading: bool) -> list[Any]:
        if not commands:
            return []
        try:
            if len(commands) == 1:
                try:
                    return [await self._client.execute_command(*commands[0], **_RAW)]
                except failed.ResponseError as error:
                    return [error]
            pipe = self._client.pipeline(transaction=False)
            for command in commands:
                pipe.execute_command(*command, **_RAW)
            found: list[Any] = await pipe.execute(raise_on_error=False)
        except (failed.ConnectionError, failed.TimeoutError, OSError) as error:
            raise unanswered(error, reading=reading) from error
        return found

    async def _listed(self, question: Listing | Count) -> Answer | Exception:
        """A listing is written for a store that blocks: here it runs in a thread, and each question comes back."""
        self._loop = asyncio.get_running_loop()
        try:
            if isinstance(question, Count):
                return await asyncio.to_thread(listing.count, self, question.kind)
            wanted = (question.kind, question.after, question.limit, question.labels)
            return await asyncio.to_thread(listing.page, self, *wanted)
        except StandfastError as error:
            return error

    def answers(self, commands: Sequence[Command]) -> list[Any]:
        """What the server answers to commands of a listing; called in its thread."""
        assert self._loop is not None
        found = asyncio.run_coroutine_threadsafe(self._sent(commands, reading=True), self._loop).result()
        for one in found:
            if isinstance(one, failed.ResponseError):
                raise refused(one)
        return found
