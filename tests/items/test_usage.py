"""Usage: what is added up is what was spent, whoever counted it."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

from hypothesis import given, strategies as st
from pydantic import TypeAdapter

from standfast._src.items.usage import InputTokensDetails, OutputTokensDetails, RequestUsage, Usage

counts = st.integers(0, 10_000)
entries = st.builds(
    RequestUsage,
    counts,
    counts,
    counts,
    st.builds(InputTokensDetails, counts, counts),
    st.builds(OutputTokensDetails, counts),
)
usages = st.builds(
    Usage,
    st.integers(0, 5),
    counts,
    st.builds(InputTokensDetails, counts, counts),
    counts,
    st.builds(OutputTokensDetails, counts),
    counts,
    st.lists(entries, max_size=3),
)


@given(st.lists(usages))
def test_a_sum_is_the_sum_of_its_parts(parts):
    total = Usage()
    for part in parts:
        total.add(part)
    assert total.requests == sum(part.requests for part in parts)
    assert total.total_tokens == sum(part.total_tokens for part in parts)
    assert total.input_tokens_details.cached_tokens == sum(part.input_tokens_details.cached_tokens for part in parts)
    reasoned = sum(part.output_tokens_details.reasoning_tokens for part in parts)
    assert total.output_tokens_details.reasoning_tokens == reasoned


@given(usages)
def test_a_saved_usage_is_the_usage(usage):
    assert Usage.from_json(usage.to_json()) == usage


@given(usages, usages)
def test_adding_changes_neither_the_part_nor_a_copy_of_the_sum(one, other):
    total, before, part = one, one.copy(), other.to_json()
    total.add(other)
    assert other.to_json() == part
    assert before.requests + other.requests == total.requests
    assert len(before.request_usage_entries) + _new_entries(other) == len(total.request_usage_entries)


def _new_entries(usage: Usage) -> int:
    tokens = usage.input_tokens, usage.output_tokens, usage.total_tokens
    return len(usage.request_usage_entries) or int(usage.requests == 1 and any(tokens))


def test_one_request_with_tokens_becomes_one_entry():
    total = Usage()
    total.add(Usage(requests=1, input_tokens=3, output_tokens=4, total_tokens=7))
    total.add(Usage(requests=1))
    total.add(Usage(requests=2, input_tokens=5, total_tokens=5))
    assert [entry.total_tokens for entry in total.request_usage_entries] == [7]
    assert total.requests == 4


def test_failed_attempts_are_requests_without_tokens():
    total = Usage(requests=1, total_tokens=7).after_failed_attempts(2)
    assert total.requests == 3
    assert [entry.total_tokens for entry in total.request_usage_entries] == [0, 0, 7]
    silent = Usage(requests=1).after_failed_attempts(1)
    assert (silent.requests, len(silent.request_usage_entries)) == (2, 2), "a server need not report tokens"


def test_details_of_any_form_are_read_where_a_usage_is_made():
    usage = Usage(input_tokens_details=None, output_tokens_details={"reasoning_tokens": 2})  # type: ignore[arg-type]
    assert usage.input_tokens_details == InputTokensDetails()
    assert usage.output_tokens_details == OutputTokensDetails(2)


def test_a_usage_of_any_spelling_is_read():
    responses = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7, "input_tokens_details": {"cached_tokens": 2}}
    chat = SimpleNamespace(
        prompt_tokens=3,
        completion_tokens=4,
        total_tokens=7,
        prompt_tokens_details=SimpleNamespace(cached_tokens=2),
        completion_tokens_details=None,
    )
    assert Usage.from_provider(responses) == Usage.from_provider(chat)
    assert Usage.from_provider(chat).input_tokens_details.cached_tokens == 2
    assert Usage.from_provider(None) == Usage(requests=1)
    assert Usage.from_provider({"input_tokens": 3, "output_tokens": 4}).total_tokens == 7


def test_the_providers_own_objects_and_the_sdks_usage_are_read():
    from agents.usage import Usage as SDKUsage, serialize_usage
    from openai.types.responses.response_usage import (
        InputTokensDetails as Details,
        OutputTokensDetails as OutDetails,
        ResponseUsage,
    )

    details = Details(cached_tokens=2, cache_write_tokens=1)
    typed = ResponseUsage(
        input_tokens=3,
        output_tokens=4,
        total_tokens=7,
        input_tokens_details=details,
        output_tokens_details=OutDetails(reasoning_tokens=1),
    )
    read = Usage.from_provider(typed)
    assert (read.requests, read.total_tokens, read.input_tokens_details.cache_write_tokens) == (1, 7, 1)

    theirs = SDKUsage(requests=1, input_tokens=3, output_tokens=4, total_tokens=7, input_tokens_details=details)
    total = Usage()
    total.add(theirs)
    assert total.request_usage_entries[0].input_tokens_details.cached_tokens == 2
    assert Usage.from_json(serialize_usage(theirs)) == Usage.from_provider(theirs)


def test_pydantic_describes_a_usage_without_a_warning():
    """As it does for a web service whose answers hold one."""
    described = TypeAdapter(Usage)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert described.json_schema()["properties"]["input_tokens_details"]["$ref"]
    assert described.validate_python({"requests": 1}) == Usage(requests=1)
