"""Whether a failed request is sent again: the decision, on every kind of failure, without sending anything."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from standfast._src.agents.retry_policies import decide, retry_policies
from standfast._src.base.errors import UserError
from standfast._src.models.retry import (
    Ask,
    GiveUp,
    ModelRetryAdvice,
    ModelRetryBackoffSettings,
    ModelRetryNormalizedError,
    ModelRetrySettings,
    RetryDecision,
    RetryPolicyContext,
    Wait,
    after,
    is_conversation_locked,
    not_taken,
)

YES = RetryDecision(True)
POLICY = ModelRetrySettings(3, policy=retry_policies.network_error())

failures = st.builds(
    ModelRetryNormalizedError,
    status_code=st.sampled_from([None, 400, 404, 408, 409, 429, 499, 500, 502, 503, 504]),
    error_code=st.sampled_from([None, "conversation_locked", "server_error"]),
    retry_after=st.sampled_from([None, 0.0, 7.5]),
    is_abort=st.booleans(),
    is_network_error=st.booleans(),
    is_timeout=st.booleans(),
    never_sent=st.booleans(),
)
advices = st.none() | st.builds(
    ModelRetryAdvice,
    suggested=st.sampled_from([None, True, False]),
    retry_after=st.sampled_from([None, 3.0]),
    replay_safety=st.sampled_from([None, "safe", "unsafe"]),
    response_started=st.booleans(),
)
decisions = st.none() | st.builds(
    RetryDecision, st.booleans(), st.sampled_from([None, 1.5]), st.none(), approve_unsafe_replay=st.booleans()
)
situations = st.fixed_dictionaries(
    {
        "attempt": st.integers(1, 5),
        "settings": st.sampled_from([None, ModelRetrySettings(), ModelRetrySettings(0), POLICY, ModelRetrySettings(3)]),
        "stateful": st.booleans(),
        "output_begun": st.booleans(),
        "advice": advices,
        "decision": decisions,
        "locked_retries": st.integers(0, 4),
        "settled_not_taken": st.booleans(),
        "jitter": st.floats(0, 1, exclude_max=True),
    }
)


def failed(**fields: Any) -> ModelRetryNormalizedError:
    return ModelRetryNormalizedError(**fields)


def verdict(failure: ModelRetryNormalizedError, **more: Any) -> Any:
    return after(failure, **{"attempt": 1, "settings": POLICY, "stateful": False, "decision": YES, **more})


# --- properties ------------------------------------------------------------------------------------------------------


@given(failures, situations)
def test_a_stateful_request_goes_out_again_only_with_evidence_or_approval(failure, situation):
    """Clause D5: 5xx, timeouts and cut streams are no evidence."""
    answer = after(failure, **{**situation, "stateful": True})
    if isinstance(answer, Wait):
        approved = situation["decision"] is not None and situation["decision"].approve_unsafe_replay
        locked = is_conversation_locked(failure)
        assert situation["settled_not_taken"] or not_taken(failure, situation["advice"]) or approved or locked


@given(failures, situations)
def test_output_that_has_begun_is_never_asked_for_again(failure, situation):
    assert not isinstance(after(failure, **{**situation, "output_begun": True}), Wait | Ask)


@given(failures, situations)
def test_a_cancelled_call_is_never_repeated(failure, situation):
    failure.is_abort = True
    assert isinstance(after(failure, **situation), GiveUp)


@given(failures, situations)
def test_counted_retries_end_at_max_retries(failure, situation):
    answer = after(failure, **situation)
    if isinstance(answer, Wait) and answer.counted:
        assert situation["attempt"] <= situation["settings"].max_retries
    if isinstance(answer, Wait) and not answer.counted:
        assert situation["locked_retries"] < 3


@given(failures, situations)
def test_waiting_takes_a_time_that_is_not_negative(failure, situation):
    answer = after(failure, **situation)
    assert not isinstance(answer, Wait) or answer.seconds >= 0


@given(failures, situations)
def test_the_policy_is_asked_only_where_its_answer_can_matter(failure, situation):
    """An Ask is never followed by another, and a yes could have been obeyed but for the request itself."""
    answer = after(failure, **{**situation, "decision": None})
    if isinstance(answer, Ask):
        assert not isinstance(after(failure, **{**situation, "decision": YES}), Ask)
        assert isinstance(after(failure, **{**situation, "decision": RetryDecision(False)}), GiveUp)


@given(failures, situations)
def test_only_a_stateful_request_without_evidence_has_an_unknown_outcome(failure, situation):
    answer = after(failure, **situation)
    if isinstance(answer, GiveUp):
        evidence = situation["settled_not_taken"] or not_taken(failure, situation["advice"])
        assert answer.outcome_unknown == (situation["stateful"] and not evidence)


@given(st.integers(1, 2000), st.floats(0, 1, exclude_max=True))
def test_backoff_stays_within_its_bounds(attempt, jitter):
    settings = ModelRetryBackoffSettings(initial_delay=0.5, max_delay=8)
    delay = settings.delay_s(attempt, jitter=jitter)
    plain = min(8, 0.5 * 2 ** min(attempt - 1, 10))
    assert plain * 0.875 <= delay <= min(8, plain * 1.125)


# --- the table of spec 5.2, in order ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("so_far", "seconds"), [(0, 1.0), (1, 2.0), (2, 4.0)])
def test_a_locked_conversation_is_waited_for_without_counting(so_far, seconds):
    locked = failed(status_code=400, error_code="conversation_locked")
    answer = after(locked, attempt=1, settings=None, stateful=True, locked_retries=so_far)
    assert answer == Wait(seconds, counted=False)


def test_a_conversation_that_stays_locked_is_given_up():
    locked = failed(status_code=400, error_code="conversation_locked")
    assert isinstance(after(locked, attempt=1, settings=None, stateful=True, locked_retries=3), GiveUp)
    assert isinstance(after(locked, attempt=1, settings=ModelRetrySettings(0), stateful=True), GiveUp)


def test_without_a_policy_nothing_else_is_retried():
    answer = verdict(failed(is_network_error=True), settings=ModelRetrySettings(3), decision=None)
    assert answer == GiveUp("no retry policy is set")


def test_a_policy_is_asked_and_obeyed():
    assert verdict(failed(is_network_error=True), decision=None) == Ask()
    assert isinstance(verdict(failed(is_network_error=True)), Wait)
    refused = verdict(failed(is_network_error=True), decision=RetryDecision(False, reason="enough"))
    assert refused == GiveUp("enough")


@pytest.mark.parametrize(
    "failure",
    [
        failed(status_code=500),
        failed(status_code=503, retry_after=1.0),
        failed(is_timeout=True),
        failed(is_network_error=True),
        failed(status_code=408),
        failed(),
    ],
)
def test_no_evidence_means_no_replay_of_a_stateful_request(failure):
    """D5, the same streaming or not: the function is not even told."""
    answer = verdict(failure, stateful=True)
    assert isinstance(answer, GiveUp)
    assert answer.outcome_unknown
    assert isinstance(verdict(failure, stateful=False), Wait)
    approved = RetryDecision(True, approve_unsafe_replay=True)
    assert isinstance(verdict(failure, stateful=True, decision=approved), Wait)
    assert isinstance(verdict(failure, stateful=True, settled_not_taken=True), Wait)
    assert isinstance(verdict(failure, stateful=True, advice=ModelRetryAdvice(replay_safety="safe")), Wait)


@pytest.mark.parametrize(
    "failure", [failed(status_code=429), failed(status_code=404), failed(is_network_error=True, never_sent=True)]
)
def test_a_refused_or_unsent_stateful_request_may_go_out_again(failure):
    assert isinstance(verdict(failure, stateful=True), Wait)


def test_what_the_provider_calls_unsafe_needs_an_approval():
    unsafe = ModelRetryAdvice(replay_safety="unsafe")
    assert isinstance(verdict(failed(status_code=429), advice=unsafe), GiveUp)
    approved = RetryDecision(True, approve_unsafe_replay=True)
    assert isinstance(verdict(failed(status_code=429), advice=unsafe, decision=approved), Wait)


def test_the_delay_is_the_policys_else_the_providers_else_the_backoff():
    failure = failed(status_code=429, retry_after=7.0)
    assert verdict(failure, decision=RetryDecision(True, delay=1.0)) == Wait(1.0)
    assert verdict(failure) == Wait(7.0)
    assert verdict(failed(status_code=429), advice=ModelRetryAdvice(retry_after=5.0)) == Wait(5.0)
    assert [verdict(failed(status_code=429), attempt=n) for n in (1, 2, 3)] == [Wait(0.25), Wait(0.5), Wait(1.0)]


# --- policies --------------------------------------------------------------------------------------------------------


def context(normalized: ModelRetryNormalizedError | None = None, **more: Any) -> RetryPolicyContext:
    values = {"error": ValueError(), "attempt": 1, "max_retries": 2, "stream": False, **more}
    return RetryPolicyContext(normalized=normalized or failed(), **values)


def saying(answer: Any) -> Any:
    async def policy(_: RetryPolicyContext) -> Any:
        return answer

    return policy


async def test_ready_made_policies_look_at_what_their_names_say():
    p = retry_policies
    assert not (await decide(p.never(), context())).retry
    assert (await decide(p.network_error(), context(failed(is_timeout=True)))).retry
    assert (await decide(p.network_error(), context(failed(is_network_error=True)))).retry
    assert not (await decide(p.network_error(), context(failed(status_code=500)))).retry
    assert (await decide(p.http_status([500]), context(failed(status_code=500)))).retry
    assert await decide(p.retry_after(), context(failed(retry_after=2.0))) == RetryDecision(True, 2.0)
    assert not (await decide(p.retry_after(), context())).retry


async def test_a_combination_takes_the_last_word_on_the_delay_and_any_approval():
    one, two = RetryDecision(True, 1, "a", approve_unsafe_replay=True), RetryDecision(True, 5, "b")
    for combine in (retry_policies.any, retry_policies.all):
        assert await decide(combine(saying(one), lambda _: two), context()) == RetryDecision(True, 5, "b", True)
        assert not (await decide(combine(), context())).retry
    assert (await decide(retry_policies.any(saying(False), saying(True)), context())).retry
    assert not (await decide(retry_policies.all(saying(False), saying(True)), context())).retry


async def test_a_provider_that_advises_against_a_retry_is_obeyed():
    """Wherever it stands; only "unsafe" can be taken over, by a policy that says so."""
    p = retry_policies
    approve = saying(RetryDecision(True, approve_unsafe_replay=True))
    no = context(provider_advice=ModelRetryAdvice(suggested=False))
    unsafe = context(provider_advice=ModelRetryAdvice(suggested=False, replay_safety="unsafe"))
    for policy in (p.any(p.provider_suggested(), saying(True)), p.any(saying(True), p.provider_suggested())):
        assert not (await decide(policy, no)).retry
        assert not (await decide(policy, unsafe)).retry
    assert not (await decide(p.any(p.provider_suggested(), approve), no)).retry
    assert (await decide(p.any(p.provider_suggested(), approve), unsafe)).retry
    assert (await decide(p.all(p.provider_suggested(), approve), unsafe)).retry
    assert not (await decide(p.any(p.all(p.provider_suggested(), saying(True)), saying(True)), no)).retry


async def test_a_provider_that_suggests_a_retry_says_when():
    advised = context(provider_advice=ModelRetryAdvice(suggested=True, retry_after=3, reason="busy"))
    assert await decide(retry_policies.provider_suggested(), advised) == RetryDecision(True, 3, "busy")


@pytest.mark.parametrize("policy", ["provider_suggested", "network_error", "never"])
async def test_policies_say_no_to_a_failure_they_know_nothing_about(policy):
    assert not (await decide(getattr(retry_policies, policy)(), context())).retry


async def test_the_sdks_own_policies_and_decisions_are_understood():
    import agents

    policy = agents.retry_policies.http_status([500])
    assert (await decide(policy, context(failed(status_code=500)))).retry
    theirs = agents.RetryDecision(True, delay=2.0)
    assert await decide(lambda _: theirs, context()) == RetryDecision(True, 2.0)


async def test_a_policy_that_answers_something_else_is_refused():
    with pytest.raises(UserError, match="Return True, False or a RetryDecision"):
        await decide(saying("yes"), context())


async def test_a_provider_without_advice_may_still_have_said_when():
    told = context(provider_advice=ModelRetryAdvice(retry_after=4))
    assert await decide(retry_policies.retry_after(), told) == RetryDecision(True, 4)


def test_backoff_without_jitter_and_beyond_all_numbers():
    exact = ModelRetryBackoffSettings(jitter=False)
    assert [exact.delay_s(n, jitter=0.9) for n in (1, 2, 3, 4, 5)] == [0.25, 0.5, 1.0, 2.0, 2.0]
    assert ModelRetryBackoffSettings(multiplier=1e300, max_delay=9).delay_s(3) == 9
    assert exact.resolve(None) is exact
    assert exact.to_json_dict() == {"initial_delay": None, "max_delay": None, "multiplier": None, "jitter": False}


def test_an_override_of_nothing_is_nothing():
    assert POLICY.resolve(None) is POLICY
    assert ModelRetrySettings.coerce(POLICY) is POLICY
    with pytest.raises(TypeError, match="cannot be an int"):
        ModelRetrySettings.coerce(3)


def test_an_adapter_that_says_nothing_changes_nothing():
    seen = failed(status_code=500)
    assert seen.overlaid(None) is seen


def test_a_context_says_what_the_provider_knows():
    plain = context()
    assert (plain.response_started, plain.replay_safety, plain.stateful_request) == (False, "unknown", False)
    told = context(provider_advice=ModelRetryAdvice(replay_safety="safe", response_started=True), conversation_id="c")
    assert (told.response_started, told.replay_safety, told.stateful_request) == (True, "safe", True)


def test_an_adapter_overrides_only_what_it_says():
    seen = failed(status_code=500, is_timeout=True, message="m")
    told = seen.overlaid(failed(is_timeout=False, error_code="x"))
    assert (told.status_code, told.is_timeout, told.error_code, told.message) == (500, False, "x", "m")
    import agents

    theirs = seen.overlaid(agents.ModelRetryNormalizedError(error_code="y"))
    assert (theirs.status_code, theirs.is_timeout, theirs.error_code) == (500, True, "y")
