"""Estimated cost of usage in money, by the prices of the package `genai-prices` (extra `prices`).

A price is an estimate: providers change prices, and what was agreed with one is not in any table. So a price says where
it comes from, and a model that the table does not know has none.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from importlib.metadata import version

from genai_prices import Usage as Counted, calc_price

from standfast._src.items.usage import Usage
from standfast._src.sessions.records import RunUsage


@dataclass(frozen=True, slots=True)
class Price:
    """Amount in US dollars, with the source of the price."""

    usd: Decimal
    source: str
    """The package and its version, whose table this is; prices that were changed since are not in it."""
    model: str
    """The model as the table names it."""
    provider: str


def price_of(usage: Usage, model: str, *, provider: str | None = None, at: datetime | None = None) -> Price | None:
    """Return the cost of a model's usage; None for a model missing from the table.

    `provider` as the table names it, where several offer a model of that name; `at`: by the prices of that time.
    """
    details = usage.input_tokens_details
    counted = Counted(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=details.cached_tokens,
        cache_write_tokens=details.cache_write_tokens,
    )
    try:
        found = calc_price(counted, model, provider_id=provider, genai_request_timestamp=at)
    except LookupError:
        return None
    return Price(found.total_price, f"genai-prices {version('genai-prices')}", found.model.id, found.provider.id)


def price_of_run(run: RunUsage) -> Price | None:
    """Return the cost of a run by the prices of its time; None if a model is unknown or has no name."""
    parts = [None if one.model is None else price_of(one.usage, one.model, at=run.at) for one in run.requests]
    known = [part for part in parts if part is not None]
    if not parts or len(known) < len(parts):
        return None
    models = ", ".join(sorted({part.model for part in known}))
    providers = ", ".join(sorted({part.provider for part in known}))
    return Price(sum((part.usd for part in known), Decimal(0)), known[0].source, models, providers)
