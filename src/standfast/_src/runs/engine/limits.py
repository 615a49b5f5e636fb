"""Limits of a run and the tally of the run, compared before each request and each call (F9).

The tally counts a request before the request leaves: no crash, retry or nested run makes a request free. The cost of a
reply is added on arrival. The outermost run has the tally of all nested runs.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from typing import Any

from msgspec import Struct, convert, to_builtins

NANO = 1_000_000_000
# Money is counted in billionths of a dollar, as whole numbers: a token costs less than a millionth, and the sum of
# floats depends on their order.

NUMBER_MAX = 2**53
# Every store and every script of a store compares whole numbers exactly up to here: nine million dollars.


class Limits(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Upper bounds of a run and of nested runs; missing bounds do not limit."""

    requests: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    tool_calls: int | None = None
    nano_usd: int | None = None


class Tally(Struct, frozen=True, omit_defaults=True):
    """Use of a run so far, nested runs, retries and earlier lives included."""

    requests: int = 0
    """Begun requests, each attempt counted."""
    replies: int = 0
    """Requests with a reply; the cost of the rest is not known."""
    input_tokens: int = 0
    output_tokens: int = 0
    tool_calls: int = 0
    """Begun calls of tools and of agents as tools."""
    nano_usd: int = 0
    priced: int = 0
    """Replies whose cost is in `nano_usd`: those that arrived under a limit in money."""

    def plus(self, more: Tally) -> Tally:
        """Return the sum of two tallies."""
        return Tally(*(getattr(self, name) + getattr(more, name) for name in self.__struct_fields__))


class BudgetUse(Struct, frozen=True, omit_defaults=True):
    """Totals of a run on a budget, in the budget's unit."""

    id: str
    limit: int | None = None
    """Limit of the program, used unless the store has a limit."""
    spent: int = 0
    """Cost of all replies."""
    unknown: int = 0
    """Estimates of requests without a known outcome."""
    held: int = 0
    """Reservations of requests under way."""

    def add(self, spent: int = 0, unknown: int = 0, held: int = 0) -> BudgetUse:
        """Return a copy with added numbers."""
        return BudgetUse(self.id, self.limit, self.spent + spent, self.unknown + unknown, self.held + held)


def read_budgets(value: object) -> tuple[BudgetUse, ...]:
    """Return the budgets in a run's context."""
    return convert(value, tuple[BudgetUse, ...]) if isinstance(value, list | tuple) else ()


def read_limits(value: object) -> Limits | None:
    """Return the limits in a run's context, if any."""
    return convert(value, Limits) if isinstance(value, dict) else None


def read_tally(value: object) -> Tally:
    """Return the tally in a run's context."""
    return convert(value, Tally) if isinstance(value, dict) else Tally()


def plain_record(value: Limits | Tally | BudgetUse) -> dict[str, Any]:
    """Return limits or a tally as JSON for a run's context."""
    plain: dict[str, Any] = to_builtins(value)
    return plain


def full_for_request(limits: Limits, tally: Tally) -> str | None:
    """Return the name of a limit without room for a further request, if any."""
    if limits.requests is not None and tally.requests >= limits.requests:
        return "requests"
    for name in ("input_tokens", "output_tokens", "nano_usd"):
        bound = getattr(limits, name)
        if bound is not None and getattr(tally, name) >= bound:
            return name
    return None


def full_for_calls(limits: Limits, tally: Tally, count: int) -> str | None:
    """Return the name of a limit without room for `count` further calls, if any."""
    return "tool_calls" if limits.tool_calls is not None and tally.tool_calls + count > limits.tool_calls else None


def nano_of(usd: Decimal, *, up: bool = True) -> int:
    """Convert dollars to billionths: costs are rounded up, limits down."""
    with localcontext() as exact:
        exact.prec = 60
        return int((usd * NANO).to_integral_value(ROUND_CEILING if up else ROUND_FLOOR))


def dollars(nano: int) -> str:
    """Format billionths of a dollar for people."""
    with localcontext() as exact:
        exact.prec = 60
        shown = format(Decimal(nano) / NANO, "f")
    whole, _, part = shown.partition(".")
    return f"${whole}.{part.ljust(2, '0')}" if part else f"${whole}.00"
