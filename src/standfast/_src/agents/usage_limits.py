"""Limits of a run and budgets shared by runs, as a caller gives them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from decimal import Decimal, InvalidOperation
from typing import Literal, TypeAlias

from standfast._src.base.errors import InvalidSettingError, SettingTypeError
from standfast._src.base.type_names import describe_type
from standfast._src.items.usage import Usage
from standfast._src.runs.engine.limits import NUMBER_MAX, BudgetUse, Limits, nano_of

PriceFunction: TypeAlias = Callable[[Usage, str], Decimal | int | float | None]
"""Return the cost of a model's usage in US dollars; None for a model without a known price."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageLimits:
    """Upper bounds of one run, checked before each request and each tool call (F9). None: no bound.

    Everything done in the run's name counts: nested runs, attempts that failed, and earlier lives of a saved run.
    Requests and tool calls never exceed their limit. Tokens and money are known when a reply arrives: the run stops
    before the next request, so they exceed their limit by no more than the replies that were under way.
    """

    requests: int | None = None
    """Requests to a model, each attempt counted."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    tool_calls: int | None = None
    """Calls of tools and of agents as tools. A turn begins none of its calls if not all of them fit."""
    usd: Decimal | int | float | str | None = None
    """Money in US dollars, by `RunConfig.price`, else by the prices of `genai-prices` (extra `prices`).

    A request to a model without a known price is refused before it leaves.
    """

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name == "usd":
                read_usd("UsageLimits.usd", value)
            elif value is not None and type(value) is not int:
                raise SettingTypeError(f"UsageLimits.{one.name} is {describe_type(value)}", "Give a whole number.")
            elif value is not None and not 0 <= value <= NUMBER_MAX:
                raise InvalidSettingError(f"UsageLimits.{one.name} is {value}", "Give a number of 0 or more.")

    def as_data(self) -> Limits | None:
        """Return the limits as a run keeps them; None without any bound."""
        usd = read_usd("UsageLimits.usd", self.usd)
        nano = None if usd is None else nano_of(usd, up=False)
        kept = Limits(self.requests, self.input_tokens, self.output_tokens, self.tool_calls, nano)
        return None if kept == Limits() else kept


@dataclass(frozen=True, slots=True)
class Budget:
    """Budget shared by all processes on the store of a session (F10).

    `Budget("acme", usd=20, per="day")` is new on each day of the store's clock, in UTC; without `per` it is for all
    time, without a key it is the conversation's own. The amount is a default: an operator's limit in the store takes
    its place (`standfast budgets set`, `Store.set_budget`). Give exactly one of `usd`, `tokens` and `requests`.
    """

    key: str | None = None
    usd: Decimal | int | float | str | None = None
    tokens: int | None = None
    requests: int | None = None
    per: Literal["day"] | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("usd", "tokens", "requests") if getattr(self, name) is not None]
        if len(given) != 1:
            raise InvalidSettingError("a Budget needs one amount", "Give one of usd=, tokens= and requests=.")
        if self.key is not None and (not isinstance(self.key, str) or not self.key):
            raise InvalidSettingError(f"a Budget's key is {self.key!r}", "Give a non-empty string, or None.")
        if self.per not in (None, "day") or (self.key is None and self.per is not None):
            raise InvalidSettingError(f"a Budget's per is {self.per!r}", "Give 'day', with a key, or None.")
        amount = getattr(self, given[0])
        if given[0] == "usd":
            read_usd("Budget.usd", amount)
        elif type(amount) is not int or not 0 <= amount <= NUMBER_MAX:
            raise InvalidSettingError(f"Budget.{given[0]} is {amount!r}", "Give a whole number of 0 or more.")

    @property
    def unit(self) -> str:
        """Unit of the amount: usd, tokens or requests."""
        return next(name for name in ("usd", "tokens", "requests") if getattr(self, name) is not None)

    def as_data(self, session_id: str) -> BudgetUse:
        """Return the budget as a run keeps it, before any use."""
        per = "conversation" if self.key is None else self.per or "total"
        usd = read_usd("Budget.usd", self.usd)
        limit = nano_of(usd, up=False) if usd is not None else self.tokens if self.tokens is not None else self.requests
        return BudgetUse(f"{per}/{self.unit}/{self.key or session_id}", limit)


def read_usd(what: str, value: object) -> Decimal | None:
    """Convert an amount in US dollars; raise for a value that is not an amount."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Decimal | int | float | str):
        raise SettingTypeError(f"{what} is {describe_type(value)}", "Give an amount in US dollars, such as 0.50.")
    try:
        amount = Decimal(str(value))  # of a float the digits that were written, not its binary value
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or not 0 <= amount <= NUMBER_MAX // 1_000_000_000:
        raise InvalidSettingError(f"{what} is {value!r}", "Give an amount in US dollars, such as 0.50.")
    return amount
