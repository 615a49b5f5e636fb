"""Meter of a limited run: consulted before each request and each tool call of the run and its nested runs (F9).

Check and count are a single step of the event loop: concurrent nested runs never share a free place. The count is part
of the run. In a saved run, the store has the count of a request before the request leaves.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from standfast._src.agents.usage_limits import PriceFunction
from standfast._src.base.errors import UsageLimitExceeded, UserError
from standfast._src.items.history import LOCAL_CALL_TYPES
from standfast._src.items.usage import Usage
from standfast._src.runs.engine.events import Tallied
from standfast._src.runs.engine.limits import (
    Limits,
    Tally,
    dollars,
    full_for_calls,
    full_for_request,
    nano_of,
)
from standfast._src.runs.engine.run import Run, Turn
from standfast._src.runs.loop.loop import Loop

ONE_OF_EACH = Usage(requests=1, input_tokens=1, output_tokens=1, total_tokens=2)
"""Smallest usage, to find out the existence of a price."""


class UsageMeter:
    """Meter of a limited run, linked to the meter of the enclosing run."""

    def __init__(self, loop: Loop, price: PriceFunction, outer: UsageMeter | None = None) -> None:
        self._loop, self._price, self._outer = loop, price, outer

    def _chain(self) -> Iterator[UsageMeter]:
        meter: UsageMeter | None = self
        while meter is not None:
            yield meter
            meter = meter._outer

    def adopt(self) -> None:
        """Count the use of a run before its first limit."""
        run = self._loop.run
        if run.spec.tally != Tally():
            return
        for one in _runs_in(run):
            for response in one.responses:
                self._add(Usage.from_json(response.usage), response.model or "")
            entries = (*one.ledger, *(one.turn.reply if one.turn is not None else ()))
            calls = sum(
                entry.kind == "tool_call_item" and entry.item.get("type") in LOCAL_CALL_TYPES for entry in entries
            )
            self._loop.apply(Tallied(Tally(tool_calls=calls)))

    # --- before ------------------------------------------------------------------------------------------------------

    async def begin_request(self, model: Any) -> None:
        """Count a request before sending; raise UsageLimitExceeded at a full limit."""
        for one in self._chain():
            one._check_request(model)
        for one in self._chain():
            one._loop.apply(Tallied(Tally(requests=1)))
        for one in self._chain():
            await one._loop.save_tally()

    def _check_request(self, model: Any) -> None:
        limits, tally = self._limits, self._loop.run.spec.tally
        if full := full_for_request(limits, tally):
            raise self._build_error(full, limits, tally, "another request")
        if limits.nano_usd is not None:
            self.price_of(ONE_OF_EACH, _name_of(model))

    def check_calls(self, turn: Turn) -> None:
        """Raise UsageLimitExceeded unless all unbegun calls of a turn fit."""
        count = sum(
            call.kind in ("tool", "agent") and call.state == "asked" and call.child is None for call in turn.calls
        )
        for one in self._chain():
            one._check_calls(count)

    def begin_call(self) -> None:
        """Count a tool call. The count is saved with the beginning of the call."""
        for one in self._chain():
            one._check_calls(1)
        for one in self._chain():
            one._loop.apply(Tallied(Tally(tool_calls=1)))

    def _check_calls(self, count: int) -> None:
        limits, tally = self._limits, self._loop.run.spec.tally
        if count and (full := full_for_calls(limits, tally, count)):
            raise self._build_error(full, limits, tally, "another call" if count == 1 else f"{count} more calls")

    # --- after -------------------------------------------------------------------------------------------------------

    def note_reply(self, usage: Usage, model: Any, failed: int) -> None:
        """Add the usage of a reply, without its `failed` attempts: each was counted before sending."""
        # A model of a user may send several requests for a reply: only the first was counted.
        more = max(0, usage.requests - failed - 1)
        for one in self._chain():
            one._add(usage, _name_of(model), requests=more)

    def _add(self, usage: Usage, model: str, requests: int | None = None) -> None:
        nano = 0 if self._limits.nano_usd is None else nano_of(self.price_of(usage, model))
        count = usage.requests if requests is None else requests
        tokens = max(0, usage.input_tokens), max(0, usage.output_tokens)
        self._loop.apply(Tallied(Tally(max(0, count), 1, *tokens, nano_usd=max(0, nano))))

    def price_of(self, usage: Usage, model: str) -> Decimal:
        """Return the cost of a usage; raise UserError for a model without a known price."""
        found = self._price(usage, model)
        if found is None:
            named = f"model {model!r}" if model else "a model without a name"
            raise UserError(
                f"a limit in money cannot be kept: {named} has no known price, and no request was sent to it",
                "Give its price: RunConfig(price=lambda usage, model: dollars), or limit tokens instead.",
            )
        return found if isinstance(found, Decimal) else Decimal(str(found))

    # --- what is said ------------------------------------------------------------------------------------------------

    @property
    def _limits(self) -> Limits:
        return self._loop.run.spec.limits or Limits()

    def _build_error(self, name: str, limits: Limits, tally: Tally, wanted: str) -> UsageLimitExceeded:
        bound, used = getattr(limits, name), getattr(tally, name)
        shown = "usd" if name == "nano_usd" else name
        said = f"{dollars(used)} of {dollars(bound)}" if name == "nano_usd" else f"{used} of {bound} {name}"
        return UsageLimitExceeded(
            f"run {self._loop.run.spec.run_id!r} has used {said}, and its limit leaves no room for {wanted}",
            f"Resume it under a higher limit: RunConfig(limits=UsageLimits({shown}=...)) with Runner.resume, or with"
            " Runner.run(agent, error.run_state). What it has used stays counted.",
            limit=shown,
        )


def _name_of(model: Any) -> str:
    name = getattr(model, "model", None)
    return name if isinstance(name, str) else ""


def _runs_in(run: Run) -> Iterator[Run]:
    """Yield a run and the nested runs of its open calls."""
    yield run
    for call in run.calls:
        if call.child is not None:
            yield from _runs_in(call.child)
