"""Meter of a limited run: consulted before each request and each tool call of the run and its nested runs (F9).

Check and count are a single step of the event loop: concurrent nested runs never share a free place. The count is part
of the run. In a saved run, the store has the count of a request before the request leaves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

from standfast._src.agents.usage_limits import PriceFunction
from standfast._src.base.errors import BudgetExceeded, StandfastError, UsageLimitExceeded, UserError
from standfast._src.base.json_values import Item, encode_value
from standfast._src.items.history import LOCAL_CALL_TYPES
from standfast._src.items.usage import Usage
from standfast._src.runs.engine.events import Metered, Tallied
from standfast._src.runs.engine.limits import (
    BudgetUse,
    Limits,
    Tally,
    dollars,
    full_for_calls,
    full_for_request,
    nano_of,
)
from standfast._src.runs.engine.run import Run, Turn
from standfast._src.runs.loop.loop import Loop
from standfast._src.runs.persistence.run_saver import RunSaver
from standfast._src.runs.steps.resolved_agent import ResolvedAgent

ONE_OF_EACH = Usage(requests=1, input_tokens=1, output_tokens=1, total_tokens=2)
"""Smallest usage, to find out the existence of a price."""


class UsageMeter:
    """Meter of a limited run, linked to the meter of the enclosing run."""

    def __init__(self, loop: Loop, price: PriceFunction, outer: UsageMeter | None = None) -> None:
        self._loop, self._price, self._outer = loop, price, outer
        self._last: tuple[Any, Usage] | None = None
        """Model and estimate of the last request."""
        self._ahead: Ticket | None = None
        """Reservation of the next request, made in the step that stores a turn."""

    def _chain(self) -> Iterator[UsageMeter]:
        meter: UsageMeter | None = self
        while meter is not None:
            yield meter
            meter = meter._outer

    def adopt(self) -> None:
        """Count the use of a run before its first limit, and the cost of replies before its first limit in money."""
        run = self._loop.run
        if run.spec.tally != Tally():
            self._price_earlier_replies()
            return
        for one in _runs_in(run):
            for response in one.responses:
                self._add(Usage.from_json(response.usage), response.model or "")
            entries = (*one.ledger, *(one.turn.reply if one.turn is not None else ()))
            calls = sum(
                entry.kind == "tool_call_item" and entry.item.get("type") in LOCAL_CALL_TYPES for entry in entries
            )
            self._loop.apply(Tallied(Tally(tool_calls=calls)))

    def _price_earlier_replies(self) -> None:
        run, tally = self._loop.run, self._loop.run.spec.tally
        if self._limits.nano_usd is None or tally.priced >= tally.replies:
            return
        # Without a limit in money no price is asked for, and only the run's replies know what they used.
        costs = [
            max(0, nano_of(self.price_of(Usage.from_json(response.usage), response.model or "")))
            for one in _runs_in(run)
            for response in one.responses
        ]
        more = Tally(nano_usd=max(0, sum(costs) - tally.nano_usd), priced=tally.replies - tally.priced)
        self._loop.apply(Tallied(more))

    # --- before ------------------------------------------------------------------------------------------------------

    async def begin_request(self, model: Any, estimate: Usage) -> Ticket:
        """Count a request and reserve an estimate before sending; raise UsageLimitExceeded without room."""
        self._last = model, estimate
        if (ticket := await self._take_ahead(model, estimate)) is not None:
            return ticket
        for one in self._chain():
            one._check_request(model)
        held = [(one, tuple(one._amount_of(use.id, estimate, model) for use in one._budgets)) for one in self._chain()]
        for one, amounts in held:
            one._loop.apply(Tallied(Tally(requests=1)))
            one._meter(tuple((0, 0, n) for n in amounts))
        ticket = Ticket([(one, amounts) for one, amounts in held if amounts])
        try:
            # Where the limits were taken off, the count is saved when something else is (F9f).
            for one, amounts in held if any(one._is_bounded for one in self._chain()) else ():
                await one._loop.save_tally(is_needed=bool(amounts))
                one._check_budgets()
        except BaseException:
            ticket.note_lost(is_free=True)  # it has not left
            for one, _ in held:
                one._loop.apply(Tallied(Tally(requests=-1)))
            raise
        return ticket

    # --- ahead: in the step that stores a turn, which is made anyway -------------------------------------------------

    def reserve_ahead(self) -> None:
        """Count and reserve the next request in the step about to store a turn, without a separate step (F10)."""
        run = self._loop.run
        is_next = run.turn is None and not run.finished and run.progress.stop is None and not run.progress.staged
        if not is_next or self._ahead is not None or self._last is None or not self._budgets:
            return
        if run.spec.max_turns is not None and run.progress.turns >= run.spec.max_turns:
            return
        model, before = self._last
        try:
            self._check_request(model)
            size = sum(len(encode_value(entry.item)) for entry in run.ledger.since(run.marks.stored))
            tokens = before.input_tokens + size // BYTES_OF_TOKEN + MARGIN_TOKENS
            estimate = Usage(requests=1, input_tokens=tokens, output_tokens=before.output_tokens)
            amounts = tuple(self._amount_of(use.id, estimate, model) for use in self._budgets)
        except StandfastError:
            return  # the request itself says so
        self._loop.apply(Tallied(Tally(requests=1)))
        self._meter(tuple((0, 0, n) for n in amounts))
        self._ahead = Ticket([(self, amounts)])

    def release_ahead(self) -> None:
        """Release the reservation of an unsent request."""
        ticket, self._ahead = self._ahead, None
        if ticket is not None:
            ticket.note_lost(is_free=True)
            self._loop.apply(Tallied(Tally(requests=-1)))

    async def _take_ahead(self, model: Any, estimate: Usage) -> Ticket | None:
        """Return a granted reservation made ahead, if the request fits."""
        ticket, saver = self._ahead, self._loop.saver
        if ticket is None or saver is None:
            return None
        # Without another write if the step that stored the turn has saved this very state.
        await self._loop.save_tally(is_needed=True)
        wanted = (self._amount_of(use.id, estimate, model) for use in self._budgets)
        if saver.refused or any(n > held for n, held in zip(wanted, ticket.held[self], strict=True)):
            self.release_ahead()
            return None
        self._ahead = None
        return ticket

    @property
    def _is_bounded(self) -> bool:
        return self._loop.run.spec.limits is not None or bool(self._budgets)

    @property
    def _budgets(self) -> tuple[BudgetUse, ...]:
        return self._loop.run.spec.budgets

    def _meter(self, changes: tuple[tuple[int, int, int], ...]) -> None:
        if any(any(one) for one in changes):
            self._loop.apply(Metered(changes))

    def _amount_of(self, budget_id: str, usage: Usage, model: Any) -> int:
        """Return a usage in the unit of a budget."""
        unit = budget_id.split("/")[1]
        if unit == "usd":
            return max(0, nano_of(self.price_of(usage, _name_of(model))))
        return usage.requests if unit == "requests" else usage.input_tokens + usage.output_tokens

    def _check_budgets(self) -> None:
        saver = self._loop.saver
        for budget_id, limit in (saver.refused if saver is not None and self._budgets else {}).items():
            shown = dollars(limit) if "/usd/" in budget_id else str(limit)
            raise BudgetExceeded(
                f"budget {budget_id!r} of {shown} leaves no room for the next request of run"
                f" {self._loop.run.spec.run_id!r}",
                "Raise it (`standfast budgets set STORE BUDGET AMOUNT`) or wait for its next day, then resume the run.",
                limit=budget_id,
            )

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

    def note_reply(self, usage: Usage, model: Any, failed: int, ticket: Ticket | None = None) -> None:
        """Add the usage of a reply without `failed` attempts: each was counted before sending."""
        # A model of a user may send several requests for a reply: only the first was counted.
        more = max(0, usage.requests - failed - 1)
        for one in self._chain():
            one._add(usage, _name_of(model), requests=more)
        held = {} if ticket is None else ticket.held
        for one in self._chain():
            amounts = held.get(one, (0,) * len(one._budgets))
            spent = (one._amount_of(use.id, _of_one(usage, failed), model) for use in one._budgets)
            one._meter(tuple((paid, 0, -n) for paid, n in zip(spent, amounts, strict=True)))

    def _add(self, usage: Usage, model: str, requests: int | None = None) -> None:
        is_priced = self._limits.nano_usd is not None
        nano = nano_of(self.price_of(usage, model)) if is_priced else 0
        count = usage.requests if requests is None else requests
        tokens = max(0, usage.input_tokens), max(0, usage.output_tokens)
        more = Tally(max(0, count), 1, *tokens, nano_usd=max(0, nano), priced=int(is_priced))
        self._loop.apply(Tallied(more))

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


class Ticket:
    """Reservation of one request on the budgets of a run and of enclosing runs."""

    def __init__(self, held: Sequence[tuple[UsageMeter, tuple[int, ...]]]) -> None:
        self.held = dict(held)

    def note_lost(self, *, is_free: bool) -> None:
        """Release the reservation of a request without a reply; unless free, count it as spent and unknown."""
        for meter, amounts in self.held.items():
            meter._meter(tuple((0, 0 if is_free else n, -n) for n in amounts))


BYTES_OF_TOKEN, OUTPUT_TOKENS, MARGIN_TOKENS = 3, 1000, 50
# English text has four bytes a token, and JSON fewer. Without `max_tokens`, a reply longer than this exceeds its
# estimate.


def estimate_request(items: Sequence[Item], instructions: str | None, resolved: ResolvedAgent) -> Usage:
    """Estimate the usage of a request from size and `max_tokens`."""
    size = sum(len(encode_value(item)) for item in items) + len((instructions or "").encode("utf-8", "replace"))
    size += sum(len(str(getattr(tool, "params_json_schema", ""))) + 100 for tool in resolved.tools)
    tokens_in, tokens_out = size // BYTES_OF_TOKEN + 1, resolved.settings.max_tokens or OUTPUT_TOKENS
    return Usage(requests=1, input_tokens=tokens_in, output_tokens=tokens_out, total_tokens=tokens_in + tokens_out)


def check_budgets(saver: RunSaver[Run] | None, *, is_nested: bool) -> None:
    """Raise UserError if the session cannot keep budgets in the steps of the run."""
    if saver is not None and (reason := getattr(saver.store, "no_budgets", "")):
        raise UserError(f"this store keeps no budgets: {reason}", "Use a store of one server, or limits of the run.")
    if saver is None or saver.beside is None or is_nested:
        raise UserError(
            "budgets need a session that keeps its runs, and this run has none",
            "Give the run a session of standfast's, without save='never' and run_store; an agent tool shares the"
            " budgets of the enclosing run.",
        )


def _of_one(usage: Usage, failed: int) -> Usage:
    """Return a usage without failed attempts: each had a separate reservation."""
    if not failed:
        return usage
    return Usage(max(1, usage.requests - failed), usage.input_tokens, usage.input_tokens_details, usage.output_tokens)


def _name_of(model: Any) -> str:
    name = getattr(model, "model", None)
    return name if isinstance(name, str) else ""


def _runs_in(run: Run) -> Iterator[Run]:
    """Yield a run and the nested runs of its open calls."""
    yield run
    for call in run.calls:
        if call.child is not None:
            yield from _runs_in(call.child)
