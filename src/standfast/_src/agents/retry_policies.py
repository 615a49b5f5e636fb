"""Ready-made retry policies, and asking a policy: the part of retrying that may wait for the user's code.

A policy is any callable that takes a `RetryPolicyContext` and returns a bool or a `RetryDecision`, at once or later.
A provider that advises against a retry is obeyed whatever stands beside it in `any` or `all`; only where it said
"unsafe" may another policy take the responsibility with `approve_unsafe_replay`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from standfast._src.base.aio import maybe_await
from standfast._src.base.errors import UserError
from standfast._src.models.retry import RetryDecision, RetryPolicy, RetryPolicyContext


@dataclass
class _Veto(RetryDecision):
    """No, and no other policy may overrule it; a `delegable` one yields to an approval of an unsafe replay."""

    delegable: bool = False


async def decide(policy: RetryPolicy, context: RetryPolicyContext) -> RetryDecision:
    """The policy's answer; raises UserError if it is neither a bool nor a RetryDecision."""
    answer: Any = await maybe_await(policy(context))
    if isinstance(answer, bool):
        return RetryDecision(answer)
    if isinstance(answer, RetryDecision):
        return answer
    if all(hasattr(answer, name) for name in ("retry", "delay", "reason", "approve_unsafe_replay")):
        return RetryDecision(answer.retry, answer.delay, answer.reason, answer.approve_unsafe_replay)
    raise UserError(
        f"a retry policy returned a {type(answer).__name__}", "Return True, False or a RetryDecision from it."
    )


def _merge_decisions(decisions: list[RetryDecision]) -> RetryDecision:
    """One yes out of several: what a later one says about delay and reason wins; one approval is enough."""
    merged = RetryDecision(True)
    for decision in decisions:
        merged.delay = merged.delay if decision.delay is None else decision.delay
        merged.reason = merged.reason if decision.reason is None else decision.reason
        merged.approve_unsafe_replay = merged.approve_unsafe_replay or decision.approve_unsafe_replay
    return merged


class _RetryPolicies:
    """The ready-made policies: `retry_policies.any(retry_policies.network_error(), …)`."""

    def never(self) -> RetryPolicy:
        """Never retry."""
        return lambda context: False

    def provider_suggested(self) -> RetryPolicy:
        """Retry when the provider's adapter suggests it; obey when it advises against it."""

        def policy(context: RetryPolicyContext) -> bool | RetryDecision:
            advice = context.provider_advice
            if advice is None or advice.suggested is None:
                return False
            if not advice.suggested:
                return _Veto(False, reason=advice.reason, delegable=advice.replay_safety == "unsafe")
            return RetryDecision(True, advice.retry_after, advice.reason)

        return policy

    def network_error(self) -> RetryPolicy:
        """Retry when the network failed or the attempt timed out."""
        return lambda context: context.normalized.is_network_error or context.normalized.is_timeout

    def retry_after(self) -> RetryPolicy:
        """Retry when the provider said when to come back, and then."""

        def policy(context: RetryPolicyContext) -> bool | RetryDecision:
            seconds = context.normalized.retry_after
            if seconds is None and context.provider_advice is not None:
                seconds = context.provider_advice.retry_after
            return False if seconds is None else RetryDecision(True, seconds)

        return policy

    def http_status(self, statuses: Iterable[int]) -> RetryPolicy:
        """Retry on these HTTP statuses."""
        wanted = frozenset(statuses)
        return lambda context: context.normalized.status_code in wanted

    def all(self, *policies: RetryPolicy) -> RetryPolicy:
        """Retry when every policy says so; without any, never."""

        async def policy(context: RetryPolicyContext) -> RetryDecision:
            yes, veto = [], None
            for each in policies:
                decision = await decide(each, context)
                if isinstance(decision, _Veto) and decision.delegable:
                    veto = decision
                elif not decision.retry:
                    return decision
                else:
                    yes.append(decision)
            return _with_veto(yes, veto)

        return policy

    def any(self, *policies: RetryPolicy) -> RetryPolicy:
        """Retry when at least one policy says so; without any, never."""

        async def policy(context: RetryPolicyContext) -> RetryDecision:
            yes, veto = [], None
            no = RetryDecision(False)
            for each in policies:
                decision = await decide(each, context)
                if isinstance(decision, _Veto):
                    if not decision.delegable:
                        return decision
                    veto = decision
                elif decision.retry:
                    yes.append(decision)
                else:
                    no = decision
            return _with_veto(yes, veto) if yes or veto else no

        return policy


def _with_veto(yes: list[RetryDecision], veto: _Veto | None) -> RetryDecision:
    merged = _merge_decisions(yes) if yes else RetryDecision(False)
    if veto is not None and not merged.approve_unsafe_replay:
        return veto
    return merged


retry_policies = _RetryPolicies()
