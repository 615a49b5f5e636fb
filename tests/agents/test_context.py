"""Decisions about calls, and the wrappers that carry them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from standfast._src.agents.approvals import (
    ApprovalBook,
    arguments_digest,
    decision_about,
    scope_of,
    tool_scope,
)
from standfast._src.agents.context import AgentHookContext, ChildPaused, RunContextWrapper
from standfast._src.agents.tool_context import ToolContext
from standfast._src.base.errors import ApprovalError
from standfast._src.items.items import ToolApprovalItem
from standfast._src.items.usage import Usage
from standfast._src.runs.engine.append_log import convert, plain
from standfast._src.runs.engine.run import Decision

PAY = tool_scope("pay")


def approval(call_id: str = "c1", arguments: str = '{"to":"a"}', name: str = "pay", **extra: Any) -> ToolApprovalItem:
    raw = {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, **extra}
    return ToolApprovalItem(agent=None, raw_item=raw)


# --- the book --------------------------------------------------------------------------------------------------------


def test_a_call_nobody_decided_about_has_no_status():
    assert ApprovalBook().status("c1", PAY) is None


def test_the_last_decision_about_a_call_wins():
    wrapper = RunContextWrapper(None)
    wrapper.approve_tool(approval())
    wrapper.reject_tool(approval(), rejection_message="no")
    assert wrapper.is_tool_approved("pay", "c1") is False
    wrapper.approve_tool(approval())
    assert wrapper.is_tool_approved("pay", "c1") is True
    assert wrapper.get_rejection_message("pay", "c1") is None


def test_a_decision_about_a_call_overrides_one_about_its_tool():
    wrapper = RunContextWrapper(None)
    wrapper.approve_tool(approval("c1"), always_approve=True)
    wrapper.reject_tool(approval("c2"))
    assert wrapper.is_tool_approved("pay", "c2") is False
    assert wrapper.is_tool_approved("pay", "c3") is True


@pytest.mark.parametrize("approve_last", [True, False])
def test_of_two_decisions_for_good_the_last_counts(approve_last: bool):
    """As in the SDK: whoever takes back what they allowed is heard."""
    wrapper = RunContextWrapper(None)
    for approved in (not approve_last, approve_last):
        if approved:
            wrapper.approve_tool(approval("c1"), always_approve=True)
        else:
            wrapper.reject_tool(approval("c2"), always_reject=True, rejection_message="never")
    assert wrapper.is_tool_approved("pay", "later") is approve_last
    assert wrapper.get_rejection_message("pay", "later") == (None if approve_last else "never")
    assert wrapper.is_tool_approved("pay", "c2") is False, "what was said about a call itself still counts"


def test_a_sticky_rejection_keeps_its_message_for_later_calls():
    wrapper = RunContextWrapper(None)
    wrapper.reject_tool(approval("c1"), always_reject=True, rejection_message="not today")
    assert wrapper.is_tool_approved("pay", "c9") is False
    assert wrapper.get_rejection_message("pay", "c9") == "not today"


def test_a_sticky_decision_covers_its_tool_and_no_namesake():
    wrapper = RunContextWrapper(None)
    wrapper.approve_tool(approval("c1"), always_approve=True)
    assert wrapper.is_tool_approved("pay", "c2") is True
    assert wrapper.get_approval_status("pay", "c2", tool_namespace="bank") is None
    hosted = ToolApprovalItem(
        agent=None,
        raw_item={"type": "mcp_approval_request", "id": "m1", "name": "pay", "server_label": "s", "arguments": "{}"},
    )
    assert scope_of(hosted) != PAY
    assert wrapper.get_approval_status("pay", "m1", existing_pending=hosted) is None


def test_names_that_look_alike_have_scopes_that_do_not():
    scopes = [
        tool_scope("a.b"),
        tool_scope("b", namespace="a"),
        tool_scope("b", namespace="a", kind="mcp"),
        tool_scope('a","b'),
        tool_scope("b", namespace=""),
    ]
    assert len(set(scopes)) == len(scopes)


def test_a_call_that_changed_after_the_decision_is_refused():
    """C16: an approval is bound to call id, tool and arguments (issue 5)."""
    wrapper = RunContextWrapper(None)
    wrapper.approve_tool(approval(arguments='{"to":"a"}'))
    changed = approval(arguments='{"to":"mallory"}')
    with pytest.raises(ApprovalError, match="other arguments"):
        wrapper.get_approval_status("pay", "c1", existing_pending=changed)
    renamed = approval(name="pay_all")
    with pytest.raises(ApprovalError, match="another tool"):
        wrapper.get_approval_status("pay_all", "c1", current_invocation=renamed)
    assert wrapper.is_tool_approved("pay_all", "c1") is None, "asked by name alone, such a decision just does not count"


def test_an_approval_item_without_a_call_is_refused():
    with pytest.raises(ApprovalError, match="names no call"):
        decision_about(ToolApprovalItem(agent=None, raw_item={"type": "function_call", "name": "pay"}), approved=True)


def test_a_decision_about_nothing_is_refused():
    with pytest.raises(ApprovalError):
        ApprovalBook().record(Decision(True, None, PAY))


def test_only_new_decisions_are_drained_and_only_once():
    old = Decision(True, "c1", PAY)
    book = ApprovalBook.from_decisions([old])
    assert book.drain() == []
    new = Decision(False, "c2", PAY, message="no")
    book.record(new)
    assert book.drain() == [new]
    assert book.drain() == []
    assert book.decisions() == [old, new]


decisions = st.builds(
    Decision,
    call_id=st.sampled_from(["c1", "c2", "c3"]),
    scope=st.just(PAY),
    approved=st.booleans(),
    sticky=st.booleans(),
    message=st.none() | st.text(max_size=5),
    arguments_digest=st.just(arguments_digest("{}")),
)


@given(st.lists(decisions, max_size=12))
def test_a_book_says_what_the_rules_say_and_survives_json(made: list[Decision]):
    """The rules of §1.10, written a second time in the most naive way."""
    book = ApprovalBook.from_decisions(convert(plain(made), list[Decision]))
    for call_id in ("c1", "c2", "c3", "c4"):
        own = [decision.approved for decision in made if decision.call_id == call_id]
        sticky = [decision.approved for decision in made if decision.sticky]
        expected = own[-1] if own else sticky[-1] if sticky else None
        assert book.status(call_id, PAY, arguments_digest("{}")) is expected
        message = book.message(call_id, PAY)
        assert message is None or expected is False


def test_a_sticky_decision_may_be_about_a_tool_alone():
    book = ApprovalBook.from_decisions([Decision(False, None, PAY, sticky=True, message="never")])
    assert (book.status("c1", PAY), book.message("c1", PAY)) == (False, "never")


def test_a_message_can_be_asked_for_with_the_item_that_shows_the_call():
    wrapper = RunContextWrapper(None)
    item = approval(namespace="bank")
    wrapper.reject_tool(item, rejection_message="not now")
    assert wrapper.get_rejection_message("pay", "c1", existing_pending=item) == "not now"
    assert wrapper.get_rejection_message("pay", "c1", tool_namespace="bank") == "not now"
    assert wrapper.get_rejection_message("pay", "c1") is None


def test_a_message_belongs_to_its_rejection():
    book = ApprovalBook.from_decisions([Decision(False, "c1", PAY, message="no"), Decision(False, "c2", PAY)])
    assert book.message("c1", PAY) == "no"
    assert book.message("c2", PAY) is None


# --- wrappers --------------------------------------------------------------------------------------------------------


def test_wrappers_of_one_run_share_context_usage_and_decisions():
    app = object()
    outer = RunContextWrapper(app)
    call = {"type": "function_call", "call_id": "c1", "name": "pay", "arguments": "{}", "namespace": "bank"}
    inner = ToolContext.from_agent_context(outer, "c1", tool_call=call, agent="agent", idempotency_key="k")
    assert inner.context is app
    assert inner.usage is outer.usage
    assert inner.approvals is outer.approvals
    assert (inner.tool_name, inner.tool_arguments, inner.tool_call) == ("pay", "{}", call)
    assert inner.qualified_tool_name == "bank.pay"
    assert (inner.agent, inner.idempotency_key) == ("agent", "k")


def test_a_nested_run_shares_context_and_usage_but_not_decisions():
    outer = ToolContext({"user": 1}, Usage(requests=3), "ask", "c1", "{}", run_config="config")
    outer.approve_tool(approval(), always_approve=True)
    child = outer.for_child({"topic": "x"})
    assert child.context is outer.context
    assert child.usage is outer.usage
    assert child.run_config == "config"
    assert child.tool_input == {"topic": "x"}
    assert child.is_tool_approved("pay", "c2") is None


def test_a_tool_context_derived_from_another_keeps_agent_and_config():
    outer = ToolContext(None, Usage(), "ask", "c1", "{}", agent="outer", run_config="config")
    inner = ToolContext.from_agent_context(outer, "c2", tool_name="pay", tool_arguments="{}")
    assert (inner.agent, inner.run_config) == ("outer", "config")


@pytest.mark.parametrize("missing", ["tool_name", "tool_call_id", "tool_arguments"])
def test_a_tool_context_is_about_a_call(missing: str):
    values = {"tool_name": "pay", "tool_call_id": "c1", "tool_arguments": "{}"}
    del values[missing]
    with pytest.raises(ValueError, match=missing):
        ToolContext(None, **values)


def test_wrappers_are_keys_and_not_compared_by_content():
    one, other = RunContextWrapper(1), RunContextWrapper(1)
    assert one != other
    assert len({one, other, AgentHookContext(1)}) == 3


def test_a_tool_that_catches_every_failure_does_not_catch_a_pause():
    async def careless() -> str:
        try:
            raise ChildPaused("child")
        except Exception:
            return "swallowed"

    with pytest.raises(ChildPaused) as paused:
        careless().send(None)
    assert paused.value.child == "child"
