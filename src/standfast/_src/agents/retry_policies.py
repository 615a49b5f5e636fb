"""Ready-made retry policies, and the call of a policy: the async part of retrying.

A policy is any callable that takes a `RetryPolicyContext` and returns a bool or a `RetryDecision`, sync or async. A
provider's advice against a retry overrules every other policy in `any` or `all`; only for its verdict "unsafe" may
another policy take the responsibility with `approve_unsafe_replay`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from standfast._src.base.aio import maybe_await
from standfast._src.base.errors import UserError
from standfast._src.base.type_names import describe_type
from standfast._src.models.retry import RetryDecision, RetryPolicy, RetryPolicyContext


@dataclass
class _Veto(RetryDecision):
    """A final refusal that no other policy may overrule; a `delegable` one yields to an approval of an
    unsafe replay.
    """

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
        f"a retry policy returned {describe_type(answer)}", "Return True, False or a RetryDecision from it."
    )


def _merge_decisions(decisions: list[RetryDecision]) -> RetryDecision:
    """Merge several approvals: a later delay and reason override earlier ones; one approval of an unsafe replay is
    enough.
    """
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
        """Follow the advice of the provider's adapter, for or against a retry."""

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
        """Retry on the given HTTP statuses."""
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
        """Retry if at least one policy agrees; never without policies."""

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
