"""A17 and A18: stored values read back equal, under their own session id."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

from standfast._kits.conformance.check_context import Lab, message, short
from standfast._kits.conformance.registry import proves

if TYPE_CHECKING:
    pass

PLAIN: list[dict[str, Any]] = [
    {"role": "user", "content": "hello"},
    {"z": 1, "a": 2, "m": {"y": 1, "b": 2}, "": "empty key"},
    {"int": 1, "float": 1.0, "true": True, "false": False, "none": None, "minus zero": -0.0, "zero": 0},
    {"tenth": 0.1, "tiny": 5e-324, "huge": 1.7976931348623157e308, "exp": 1e22, "long": 1 / 3},
    {"empty": {}, "none": [], "nested": [[], {}, [{}], [[[1]]]]},
    {"text": 'línea\nnueva\t"quoted" \\ / \u2028 \u2029 \x7f', "emoji": "🧪👩‍👩‍👧", "combining": "e\u0301 é"},
    {"type": "some_new_type", "unknown": {"field": [1, "two", None]}, "call_id": "c1"},
    {"small": -(2**63), "large": 2**63 - 1},
    {"deep": [[[[[[[[[[[[[[[[[[[["bottom"]]]]]]]]]]]]]]]]]]]]},
]

HARD: dict[str, dict[str, Any]] = {
    "an integer of 2**64": {"n": 2**64},
    "an integer of 2**100 and its negative": {"n": 2**100, "m": -(2**100)},
    "an integer of 400 digits": {"n": 10**399},
    "a NUL in a text": {"text": "before\x00after"},
    "a NUL in a key": {"a\x00b": 1},
    "a lone surrogate": {"text": "\ud800"},
    "a lone surrogate in a key": {"\udfff": 1},
}

REFUSED: dict[str, dict[Any, Any]] = {
    "NaN": {"n": math.nan},
    "infinity": {"n": math.inf},
    "minus infinity": {"n": {"deep": [-math.inf]}},
    "a tuple": {"n": (1, 2)},
    "bytes": {"n": b"bytes"},
    "a set": {"n": {1}},
    "a key that is an integer": {1: "one"},
    "a key that is None": {"n": {None: 1}},
    "an object": {"n": object()},
}


@proves("A17")
async def plain_values_come_back_equal(lab: Lab) -> None:
    session = lab.open()
    await session.add_items(copy.deepcopy(PLAIN))
    for reader in (session, lab.another(session)):
        lab.same_exactly(await reader.get_items(), PLAIN, "storing ordinary values")
    lab.same_exactly([await session.pop_item()], PLAIN[-1:], "popping an ordinary value")


@proves("A17")
async def hard_values_come_back_equal_or_are_refused(lab: Lab) -> None:
    session = lab.open()
    stored: list[Any] = []
    for what, item in HARD.items():
        try:
            await session.add_items([copy.deepcopy(item)])
            stored.append(item)
        except Exception as error:
            lab.expect(isinstance(error, Exception), f"{what}: {error}")
        lab.same_exactly(await session.get_items(), stored, f"storing {what}")


@proves("A17")
async def what_json_cannot_hold_is_refused_and_never_changed(lab: Lab) -> None:
    session = lab.open()
    await session.add_items([message("before")])
    for what, item in REFUSED.items():
        try:
            await session.add_items([message("same batch"), item])
        except Exception:
            await lab.holds(session, [message("before")], f"{what} was refused")
        else:
            lab.broken(f"{what} was accepted, and comes back as {short((await session.get_items())[-1])}")


@proves("A17")
async def what_is_no_item_is_refused(lab: Lab) -> None:
    session = lab.open()
    for wrong in ("text", 5, None, ["list"]):
        await lab.refuses(session.add_items([message("good"), wrong]), f"an item that is {wrong!r}")
        await lab.holds(session, [], f"{wrong!r} was refused as an item")


@proves("A17")
async def the_callers_objects_are_neither_changed_nor_shared(lab: Lab) -> None:
    session = lab.open()
    given_items = [{"role": "user", "content": [{"type": "input_text", "text": "hello"}], "extra": {"n": [1]}}]
    kept = copy.deepcopy(given_items)
    await session.add_items(given_items)
    lab.same_exactly(given_items, kept, "add_items, by the caller's own list")
    given_items[0]["content"][0]["text"] = "changed by the caller"  # type: ignore[index]
    given_items.append(message("added by the caller"))
    lab.same_exactly(await session.get_items(), kept, "the caller changed what it had given")
    read = await session.get_items()
    read[0]["content"][0]["text"] = "changed by the reader"
    read[0]["extra"]["n"].append(2)
    read.append(message("added by the reader"))
    lab.same_exactly(await session.get_items(), kept, "a reader changed what it had been given")
    lab.same_exactly([await session.pop_item()], kept, "a reader changed what it had been given, then popping")


@proves("A17", "hypothesis")
def any_json_object_comes_back_equal(lab: Lab) -> None:
    from standfast._kits.conformance.generated_values import against_generated

    against_generated(lab)


# None of them names a table that exists: where an id reaches SQL as text that has to show, and nothing be lost by it.
IDS = [
    "a", "A", "a ", " a", "ä", "a\u0308", "a%", "a_", "a*", "a?", "a'b", 'a"b', "a;b", "a`b", "a\\b", "a/b", "../a",
    "a:b", "a:b:messages", "a:messages", "{a}", "a\nb", "a\tb", "0", "00", "1", "1.0", "None", "null", "true", "[]",
    "'; DROP TABLE no_such_table; --", "🧪", "é" * 50, "$1", ":id", "?", "\x01",
]  # fmt: skip

RISKY_IDS = ["a\x00b", "a\x00c", "\ud800", "\udfff", "b" * 100_000]


@proves("A18", "shared")
async def different_ids_never_meet(lab: Lab) -> None:
    stored: list[str] = []
    longest = lab.backend.id_chars_max
    for name in (*IDS, "a" * longest, "a" * (longest - 1), *RISKY_IDS):
        try:
            session = lab.open(name)
            lab.same(session.session_id, name, "opening, by session_id")
            await session.add_items([message(f"{len(stored)} of {name!r}")])
        except Exception as error:
            lab.expect(name in RISKY_IDS, f"id {short(name)} was refused with {type(error).__name__}: {error}")
            continue
        stored.append(name)
    for number, name in enumerate(stored):
        await lab.holds(lab.open(name), [message(f"{number} of {name!r}")], f"writing under {len(stored)} ids")


@proves("A18")
async def what_is_no_id_is_refused(lab: Lab) -> None:
    for wrong in ("", None, 5):

        async def use(wrong: Any = wrong) -> object:
            session = lab.open(wrong)
            await session.add_items([message("hello")])
            return await session.get_items()

        await lab.refuses(use(), f"the session id {wrong!r}")
