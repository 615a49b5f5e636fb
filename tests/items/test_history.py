"""Rules about lists of items, checked against their definitions on generated lists."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from standfast._src.items import history
from standfast._src.items.history import (
    CALL_OUTPUTS,
    PLACEHOLDER_ID,
    Prepared,
    call_key,
    canonical,
    deduplicate,
    identity,
    is_call,
    normalise,
    omit_reasoning_id,
    output_key,
    pair,
    prune,
    sanitise_for_store,
)

Item = dict[str, Any]


def user(text: str = "yes") -> Item:
    return {"role": "user", "content": text}


def reasoning(name: str = "r1") -> Item:
    return {"type": "reasoning", "id": name, "summary": []}


def call(name: str = "c1", kind: str = "function_call", **more: Any) -> Item:
    key = "id" if kind == "mcp_approval_request" else "call_id"
    return {"type": kind, key: name, **more}


def output(name: str = "c1", kind: str = "function_call", **more: Any) -> Item:
    key = {"mcp_approval_request": "approval_request_id", "local_shell_call": "id"}.get(kind, "call_id")
    return {"type": CALL_OUTPUTS[kind], key: name, **more}


names = st.sampled_from(["a", "b", "c", "d"])
kinds = st.sampled_from(sorted(CALL_OUTPUTS))
values = st.integers(0, 3)
owners = st.one_of(st.none(), st.builds(lambda name: {"type": "program", "caller_id": name}, names))


def with_owner(item: Item, owner: Item | None) -> Item:
    return item if owner is None else {**item, "caller": owner}


any_item = st.one_of(
    st.builds(user, st.sampled_from(["yes", "no"])),
    st.builds(lambda text: {"type": "message", "id": PLACEHOLDER_ID, "role": "assistant", "content": text}, names),
    st.builds(lambda text: {"type": "message", "id": "m1", "role": "assistant", "content": text}, names),
    st.builds(lambda n, v: {**reasoning(n), "v": v}, names, values),
    st.builds(lambda n: {"type": "reasoning", "id": PLACEHOLDER_ID, "n": n}, names),
    st.builds(lambda n, k, v, o: with_owner(call(n, k, v=v), o), names, kinds, values, owners),
    st.builds(lambda n, v: call(n, v=v), names, values),
    st.builds(lambda n, i: call(n, id=i), names, st.sampled_from(["fc_1", "fc_2", PLACEHOLDER_ID])),
    st.builds(output, names),
    st.builds(lambda n, k, v: output(n, k, v=v), names, kinds, values),
    st.builds(lambda n, v: output(n, v=v), names, values),
    st.builds(lambda n, o: with_owner({"type": "mcp_call", "id": n}, o), names, owners),
    st.builds(lambda n, v: {"type": "web_search_call", "id": n, "status": None, "v": v}, names, values),
    st.builds(lambda n: {"type": "tool_search_call", "id": n, "call_id": None, "execution": "server"}, names),
    st.builds(lambda n: {"type": "tool_search_output", "id": n, "call_id": None}, names),
    st.builds(lambda n: {"type": "compaction", "id": n, "_standfast": {"x": 1}}, names),
    st.builds(lambda kind: {"type": kind, "caller": {"type": "direct"}}, kinds),
    st.builds(lambda kind: {"type": CALL_OUTPUTS[kind]}, kinds),
)
one_or_two = st.sampled_from(["a", "b"])
program_item = st.one_of(
    st.builds(lambda n: call(n, "program"), one_or_two),
    st.builds(lambda n: output(n, "program"), one_or_two),
    st.builds(lambda n, o: with_owner(call(n), o), names, owners),
    st.builds(output, names),
    st.builds(lambda n, o: with_owner({"type": "mcp_call", "id": n}, o), names, owners),
    st.builds(reasoning, names),
    st.just(user()),
)


@st.composite
def broken_turns(draw: Any) -> list[Item]:
    """What a limit, a pop or another program leaves of whole turns: any item may be missing."""
    items: list[Item] = []
    for turn in range(draw(st.integers(1, 4))):
        asked = [(f"t{turn}c{n}", draw(kinds)) for n in range(draw(st.integers(0, 3)))]
        whole = [user(), reasoning(f"r{turn}"), *(call(*each) for each in asked), *(output(*each) for each in asked)]
        items += [item for item in whole if draw(st.integers(0, 5))]
    return items


histories = st.one_of(st.lists(any_item, max_size=25), st.lists(program_item, max_size=15), broken_turns())


# --- one item --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(CALL_OUTPUTS))
def test_a_call_and_its_output_have_one_key(kind):
    assert call_key(call("x", kind)) == output_key(output("x", kind)) == (kind, "x")
    assert output_key(call("x", kind)) is None
    assert call_key(output("x", kind)) is None


def test_calls_that_bring_their_result_along_need_no_answer():
    assert call_key({"type": "web_search_call", "id": "w1"}) is None
    assert is_call({"type": "web_search_call", "id": "w1"})


def test_a_local_shell_output_may_name_its_call_under_either_key():
    assert output_key({"type": "local_shell_call_output", "id": "x"}) == ("local_shell_call", "x")
    assert output_key({"type": "local_shell_call_output", "call_id": "x", "id": "y"}) == ("local_shell_call", "x")


def test_normalising_drops_an_empty_status_and_internal_keys_and_nothing_else():
    item = {"type": "message", "status": None, "_agents_tool_title": "t", "_standfast": {}, "id": None, "other": None}
    assert normalise(item) == {"type": "message", "id": None, "other": None}
    assert normalise({"status": "completed"}) == {"status": "completed"}


def test_an_item_that_needs_no_change_is_passed_on_as_it_is():
    """The hot path makes no copies."""
    item = call()
    assert normalise(item) is item
    assert sanitise_for_store(item) is item
    assert omit_reasoning_id(item) is item


def test_an_approval_placeholder_never_reaches_a_store():
    assert sanitise_for_store({"type": "tool_approval_item", "call_id": "c1"}) is None
    assert (
        sanitise_for_store({"type": "mcp_approval_response", "approval_request_id": "q", "approve": True}) is not None
    )
    assert sanitise_for_store({**call(), "_standfast": 1, "status": None}) == {**call(), "status": None}


def test_reasoning_can_be_sent_without_its_id():
    assert omit_reasoning_id(reasoning()) == {"type": "reasoning", "summary": []}


def test_canonical_bytes_do_not_depend_on_the_order_of_keys_or_on_internal_ones():
    assert canonical({"a": 1, "b": {"x": [1], "y": 2}}) == canonical({"b": {"y": 2, "x": [1]}, "a": 1, "_standfast": 3})
    assert canonical({"a": 1}) != canonical({"a": 1.0})
    assert canonical({"a": "\ud800"}) == canonical({"a": "\ud800"})


@given(any_item, any_item)
def test_canonical_bytes_are_equal_exactly_for_equal_items(one, other):
    assert (canonical(one) == canonical(other)) == (sanitise_for_store(one) == sanitise_for_store(other))


@given(any_item)
def test_no_rule_changes_the_item_it_is_given(item):
    before = copy.deepcopy(item)
    for rule in (normalise, sanitise_for_store, omit_reasoning_id, canonical, identity, call_key, output_key):
        rule(item)
    assert item == before


# --- the same item twice ---------------------------------------------------------------------------------------------


def test_two_equal_messages_are_two_items():
    """Two people may both say "yes" (C2)."""
    said = {"type": "message", "id": "m1", "role": "user", "content": "yes"}
    assert deduplicate([user(), user(), said, said]) == [user(), user(), said, said]


def test_placeholder_ids_name_nothing():
    one, other = ({"type": "reasoning", "id": PLACEHOLDER_ID, "n": n} for n in (1, 2))
    assert deduplicate([one, other]) == [one, other]


def test_the_latest_value_of_a_call_stands_at_its_earliest_place():
    assert deduplicate([call(v=1), user(), call(v=2)]) == [call(v=2), user()]


def test_the_latest_value_of_an_output_stands_at_its_latest_place():
    assert deduplicate([call(), output(v=1), user(), output(v=2)]) == [call(), user(), output(v=2)]


def test_the_same_id_under_two_types_is_two_items():
    assert deduplicate([call("x"), call("x", "shell_call")]) == [call("x"), call("x", "shell_call")]


def test_approval_responses_without_an_id_are_known_by_their_request():
    no, yes = ({"type": "mcp_approval_response", "approval_request_id": "q", "approve": v} for v in (False, True))
    assert deduplicate([no, yes]) == [yes]


def test_a_call_id_used_again_after_its_output_is_another_call():
    """C2: providers that number the calls of each request."""
    items = [call(v=1), output(v=1), user(), call(v=2), output(v=2)]
    assert deduplicate(items) == items
    assert prune(items) == (items, [])
    assert pair(items) == {0: 1, 3: 4}


def test_a_call_and_its_output_that_are_given_again_whole_are_sent_once():
    """C2: a list from `to_input_list()` beside a session that has it. A provider refuses the second copy."""
    turn = [user(), call("a", id="fc_1"), output("a", v=1)]
    assert deduplicate([*turn, *turn, user()]) == [*turn, user(), user()]
    prepared = Prepared(turn)
    for item in turn:  # however the copies come
        prepared.extend([item])
    assert prepared.list() == [*turn, user()]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([call("a", id="fc_1"), output("a", v=1)], [call("a", id="fc_2"), output("a", v=1)]),
        ([call("a", id="fc_1"), output("a", v=1)], [call("a", id="fc_1"), output("a", v=2)]),
        ([call("a", id="fc_1", v=1), output("a")], [call("a", id="fc_1", v=2), output("a")]),
        ([call("a", id=PLACEHOLDER_ID), output("a")], [call("a", id=PLACEHOLDER_ID), output("a")]),
        ([call("a"), output("a")], [call("a"), output("a")]),
    ],
    ids=["another id", "another output", "another content", "the placeholder", "no id"],
)
def test_a_call_that_differs_in_anything_or_has_no_id_of_its_provider_is_another(first, second):
    """C2: providers that number the calls of each request."""
    assert deduplicate([*first, user(), *second]) == [*first, user(), *second]


def test_an_output_belongs_to_the_nearest_open_call_of_its_id():
    kept, left = prune([call(v=1), user(), call(v=2), output(v=2)])
    assert (kept, [one.item for one in left]) == ([user(), call(v=2), output(v=2)], [call(v=1)])


@given(histories)
def test_deduplicating_keeps_one_item_of_each_identity_with_its_latest_value(items):
    """C2: of a call id, one for each time that it was used: two calls have an output between them, and so on."""
    result = deduplicate(items)
    last: dict[Any, Any] = {}
    for item in result:
        key, pair_key = identity(item), call_key(item) or output_key(item)
        if key is None:
            continue
        assert key not in last or (len(key) == 2 and last.get(pair_key) not in (None, key))
        last[key] = last[pair_key] = key
    latest = {key: item for item in items if (key := identity(item)) is not None}
    assert {identity(item): item for item in result if identity(item) is not None} == latest
    assert [i for i in result if identity(i) is None] == [i for i in items if identity(i) is None]
    assert deduplicate(result) == result


@given(histories)
def test_calls_and_reasoning_keep_the_order_in_which_they_first_came(items):
    def firsts(found: list[Item]) -> list[Any]:
        anchored = (identity(i) for i in found if is_call(i) or i.get("type") == "reasoning")
        return list(dict.fromkeys(key for key in anchored if key is not None))

    assert firsts(deduplicate(items)) == firsts(items)


# --- what a provider accepts -----------------------------------------------------------------------------------------


def test_an_unanswered_call_is_left_out_with_the_reasoning_before_it():
    kept, left = prune([user(), reasoning("r0"), reasoning("r1"), call()])
    assert kept == [user()]
    assert [entry.item for entry in left] == [reasoning("r0"), reasoning("r1"), call()]
    assert {entry.reason for entry in left} == {history.NO_OUTPUT, history.NO_FOLLOWER}


def test_reasoning_stays_with_the_call_that_stays():
    """A provider refuses a call without its reasoning, and the reasoning led to both calls."""
    items = [reasoning(), call("a"), call("b"), output("b")]
    assert prune(items)[0] == [reasoning(), call("b"), output("b")]


def test_reasoning_that_led_to_a_message_stays():
    message = {"type": "message", "id": "m", "role": "assistant", "content": []}
    assert prune([reasoning(), message, call()])[0] == [reasoning(), message]


@pytest.mark.parametrize("behind", [[], [output("gone")]], ids=["next", "behind what is left out"])
def test_reasoning_that_the_next_turn_follows_led_to_nothing_and_is_left_out(behind):
    items = [user(), reasoning("r0"), reasoning("r1"), *behind]
    assert prune(items)[0] == [user(), reasoning("r0"), reasoning("r1")]  # what it leads to may come
    kept, left = prune([*items, user()])
    assert kept == [user(), user()]
    assert [entry.reason for entry in left[:2]] == [history.CUT_REASONING] * 2
    prepared = Prepared(items)
    prepared.extend([user()])
    assert (prepared.list(), prepared.left_out) == (kept, left)


def test_an_output_without_its_call_is_left_out():
    kept, left = prune([output(), user()])
    assert kept == [user()]
    assert left == [(output(), history.NO_CALL)]


@pytest.mark.parametrize("item", [{"type": "function_call"}, {"type": "function_call_output", "call_id": None}])
def test_a_call_or_output_without_an_id_can_never_be_part_of_a_pair(item):
    assert prune([item, user()])[0] == [user()]


def test_an_output_does_not_answer_a_later_call():
    kept, left = prune([output(), call()])
    assert kept == []
    assert [entry.reason for entry in left] == [history.NO_CALL, history.NO_OUTPUT]


def test_an_unanswered_approval_request_of_a_provider_is_left_out():
    assert prune([call("q", "mcp_approval_request")])[0] == []
    both = [call("q", "mcp_approval_request"), output("q", "mcp_approval_request")]
    assert prune(both)[0] == both


def test_a_program_at_work_stays_with_what_it_asked_for():
    """Between its calls' outputs and its own, a program has none yet."""
    owner = {"type": "program", "caller_id": "p"}
    items = [call("p", "program"), call("a", caller=owner), output("a", caller=owner)]
    assert prune(items) == (items, [])


def test_what_a_program_made_goes_when_the_program_is_gone():
    owner = {"type": "program", "caller_id": "p"}
    kept, left = prune([call("a", caller=owner), output("a", caller=owner), user()])
    assert kept == [user()]
    assert [entry.reason for entry in left] == [history.NO_PROGRAM, history.NO_CALL]


@given(histories)
def test_what_is_kept_is_valid_and_what_is_not_is_reported(items):
    items = deduplicate(items)
    kept, left = prune(items)
    answered = pair(kept)
    owners = {history.owner_key(item) for item in kept}
    for place, item in enumerate(kept):
        key = call_key(item)
        if key is not None:
            assert place in answered or (key[0] == "program" and key in owners)
        if output_key(item) is not None:
            assert place in answered.values()
    assert len(kept) + len(left) == len(items)
    everything = iter(items)  # both lists keep the order of the items: identity, not likeness
    assert all(any(item is other for other in everything) for item in kept)


@given(histories)
def test_pruning_leaves_out_nothing_more_the_second_time(items):
    kept, _ = prune(deduplicate(items))
    again, left = prune(kept)
    assert [entry for entry in left if entry.reason != history.NO_FOLLOWER] == []
    assert [item for item in kept if item.get("type") != "reasoning"] == [
        item for item in again if item.get("type") != "reasoning"
    ]


@given(histories)
def test_whole_turns_are_kept_whole(items):
    """Nothing is left out that a provider would have accepted: complete turns stay as they are."""
    whole = [user(), reasoning("new"), call("new1"), call("new2"), output("new2"), output("new1")]
    kept, left = prune(deduplicate([*items, *whole]))
    assert kept[-len(whole) :] == whole
    # With the message that begins the turn: reasoning at the end of a list may still lead to something, before it not.
    assert prune(deduplicate([*items, user()])) == (kept[: 1 - len(whole)], left)


@given(histories)
def test_messages_are_never_left_out(items):
    kept, _ = prune(deduplicate(items))
    messages = [[item for item in one if item.get("type", "message") == "message"] for one in (kept, items)]
    assert messages[0] == messages[1]


# --- a list that grows -----------------------------------------------------------------------------------------------


@settings(max_examples=400)
@given(histories, st.data())
def test_how_a_history_is_cut_into_turns_does_not_change_what_is_sent(items, data):
    prepared = Prepared()
    done = 0
    while done < len(items):
        size = data.draw(st.integers(1, len(items) - done))
        prepared.extend(items[done : done + size])
        done += size
        kept, left = prune(deduplicate(map(normalise, items[:done])))
        assert prepared.list() == kept
        assert prepared.left_out == left
        assert len(prepared) == len(kept)


def test_a_program_does_not_own_what_an_earlier_one_of_its_id_made():
    """Found by the property above: a whole list kept the second, a list that grew did not."""
    made = call("c", caller={"type": "program", "caller_id": "a"})
    items = [call("a", "program"), output("a", "program"), made, output("c"), call("a", "program")]
    prepared = Prepared()
    for item in items:
        prepared.extend([item])
    assert prepared.list() == prune(items)[0] == items[:-1]


def test_what_a_program_made_stays_where_its_id_is_used_again_before_the_output():
    """A list that grew forgot the first program when the second began behind a call of it, and left out that call."""
    made = call("c", caller={"type": "program", "caller_id": "a"})
    items = [call("a", "program"), output("a", "program"), made, call("a", "program"), output("c"), user()]
    for cut in range(len(items)):
        prepared = Prepared(items[:cut])
        prepared.extend(items[cut:])
        assert (prepared.list(), prepared.left_out) == prune(items)
    assert prune(items)[0] == [*items[:3], *items[4:]]


def test_a_program_does_not_own_what_came_before_it_however_the_list_grew():
    items = [call("a", caller={"type": "program", "caller_id": "p"}), call("p", "program"), output("a"), user()]
    prepared = Prepared()
    for item in items:
        prepared.extend([item])
    assert (prepared.list(), prepared.left_out) == prune(items)
    assert prepared.list() == [user()]


def test_a_program_that_seemed_idle_comes_back_with_its_first_answered_call():
    owner = {"type": "program", "caller_id": "p"}
    prepared = Prepared([call("p", "program"), user()])
    assert prepared.list() == [user()]
    prepared.extend([call("a", caller=owner), output("a")])
    assert prepared.list() == [call("p", "program"), user(), call("a", caller=owner), output("a")]


def test_a_program_that_ends_turns_later_has_its_output():
    owner = {"type": "program", "caller_id": "p"}
    prepared = Prepared([call("p", "program"), call("a", caller=owner), output("a")])
    prepared.extend([output("p", "program"), user()])
    assert prepared.left_out == []
    assert len(prepared) == 5


def test_the_prepared_list_belongs_to_the_caller():
    prepared = Prepared([user()])
    prepared.list().clear()
    assert prepared.list() == [user()]


def test_a_turn_costs_what_is_new_and_not_what_is_old(monkeypatch):
    """Counted, not timed: the rule that reads each item is called for the new ones only."""
    looked_at = []
    original = history.identity
    monkeypatch.setattr(history, "identity", lambda item: looked_at.append(item) or original(item))
    prepared = Prepared(
        item for n in range(500) for item in (user(), reasoning(f"r{n}"), call(f"c{n}"), output(f"c{n}"))
    )
    looked_at.clear()
    prepared.extend([reasoning("new"), call("new"), output("new")])
    assert len(looked_at) == 3
    assert len(prepared) == 2003
