"""Usage in money, by a table that says which it is."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

from standfast import RequestCost, RunUsage, Usage, price_of, price_of_run
from standfast._src.items.usage import InputTokensDetails


def usage(tokens: int, cached: int = 0) -> Usage:
    details = InputTokensDetails(cached)
    return Usage(1, tokens, details, output_tokens=100, total_tokens=tokens + 100)


def test_a_known_model_has_a_price_and_says_whose() -> None:
    price = price_of(usage(1_000_000), "gpt-4o", provider="openai")
    assert price is not None
    assert price.usd > 0
    assert (price.model, price.provider) == ("gpt-4o", "openai")
    assert price.source.startswith("genai-prices ")


def test_cached_tokens_cost_less() -> None:
    whole, cached = (price_of(usage(1_000_000, count), "gpt-4o") for count in (0, 900_000))
    assert whole is not None
    assert cached is not None
    assert cached.usd < whole.usd


def test_an_unknown_model_has_no_price_and_neither_has_a_run_with_one() -> None:
    assert price_of(usage(10), "a model of our own") is None
    known, unknown = RequestCost(1, usage(10), "gpt-4o"), RequestCost(2, usage(10), None)
    now = datetime.now(UTC)
    assert price_of_run(RunUsage("r", now, (known, unknown))) is None
    assert price_of_run(RunUsage("r", now)) is None
    once, twice = (price_of_run(RunUsage("r", now, (known,) * count)) for count in (1, 2))
    assert once is not None
    assert twice is not None
    assert twice.usd == 2 * once.usd > Decimal(0)
