"""Budgets of a store, for operators: how much is left, and a new limit (F10)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from standfast._src.agents.usage_limits import read_usd
from standfast._src.base.errors import InvalidSettingError
from standfast._src.base.operational_events import measure
from standfast._src.runs.engine.limits import NANO, NUMBER_MAX, dollars, nano_of
from standfast._src.sessions.client.stored_runs import StoredRunStore
from standfast._src.sessions.rules.budgets import BudgetState, check_budget_id

Amount = Decimal | int
"""US dollars for a budget in money; a whole number for tokens and requests."""


@dataclass(frozen=True, slots=True)
class BudgetView:
    """State of a budget in its present period."""

    budget_id: str
    """`total/usd/KEY`, `day/tokens/KEY`, `conversation/requests/SESSION`."""
    period: str
    """The day, for a budget by day; else "always"."""
    limit: Amount | None
    """Limit in the store, or None."""
    used: Amount
    """Spent and reserved, estimates included."""
    unknown: Amount
    """Estimates in `used`, of requests without a known outcome."""
    held: Mapping[str, Amount]
    """Reservations by run id, a part of `used`."""

    @property
    def unit(self) -> str:
        """Unit of the amounts: usd, tokens or requests."""
        return self.budget_id.split("/")[1]

    @property
    def left(self) -> Amount | None:
        """Remainder under the store's limit, at least 0; None without a limit in the store."""
        return None if self.limit is None else max(self.limit - self.used, type(self.limit)(0))

    @property
    def reserved(self) -> Amount:
        """Sum of the reservations."""
        return sum(self.held.values(), type(self.used)(0))

    def format(self, amount: Amount | None) -> str:
        """Format an amount for people."""
        if amount is None:
            return "-"
        return dollars(nano_of(Decimal(amount))) if self.unit == "usd" else f"{amount:,}"


class BudgetMethods(ABC):
    """Methods of a store about budgets."""

    url: str

    @property
    @abstractmethod
    def _runs(self) -> StoredRunStore:
        """Run store of this store."""

    @abstractmethod
    def _check_writable(self) -> None:
        """Raise if this store is only read."""

    async def budgets(self) -> list[BudgetView]:
        """List the budgets of the store, each in its present period (F10).

        Where the program has set up an OpenTelemetry meter, what is left of each is set as a gauge too.
        """
        found = [_view_of(one) for one in await self._runs.budgets()]
        for one in found:
            _report(one, self.url)
        return found

    async def budget(self, budget_id: str) -> BudgetView:
        """Return a budget in its present period; an unused one is empty (F10)."""
        return _view_of(await self._runs.budget(budget_id))

    async def set_budget(self, budget_id: str, limit: Amount | float | str | None) -> BudgetView:
        """Set the limit of a budget for all programs; None restores the limit of each program (F10).

        A lower limit takes effect before the next request. Raises InvalidSettingError for an amount without a meaning.
        """
        self._check_writable()
        unit = check_budget_id(budget_id).split("/")[1]
        return _view_of(await self._runs.set_budget(budget_id, _number_of(unit, limit)))


def _report(view: BudgetView, url: str) -> None:
    from standfast._src.tracing import opentelemetry_spans  # noqa: F401 — reports the measures below

    if view.left is not None:
        measure("standfast.budget.left", _as_figure(view.left), store=url, budget=view.budget_id)
    measure("standfast.budget.used", _as_figure(view.used), store=url, budget=view.budget_id)


def _as_figure(amount: Amount) -> float:
    return amount if isinstance(amount, int) else float(amount)


def _number_of(unit: str, limit: Amount | float | str | None) -> int | None:
    if limit is None:
        return None
    if unit == "usd":
        usd = read_usd("the limit", limit)
        assert usd is not None
        return nano_of(usd, up=False)
    if not str(limit).isdecimal() or int(limit) > NUMBER_MAX:
        raise InvalidSettingError(f"the limit is {limit!r}", f"Give a whole number of {unit}.")
    return int(limit)


def _view_of(state: BudgetState) -> BudgetView:
    is_money = state.budget_id.split("/")[1] == "usd"

    def amount(number: int) -> Amount:
        return Decimal(number) / NANO if is_money else number

    return BudgetView(
        state.budget_id,
        state.period,
        None if state.limit is None else amount(state.limit),
        amount(state.used),
        amount(state.unknown),
        {run_id: amount(held) for run_id, held in state.held.items()},
    )
