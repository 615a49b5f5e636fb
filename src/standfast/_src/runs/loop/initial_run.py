"""Initial state of a run: input items, the agent judging them, and the view made by a session callback.

The caller's input is kept unchanged as the run's own items. A callback changes the model's view only.
"""

from __future__ import annotations

import uuid

from standfast._src.agents.run_config import RunConfig
from standfast._src.base.aio import maybe_await
from standfast._src.base.errors import UserError
from standfast._src.base.json_values import Item, copy_json, encode
from standfast._src.base.type_names import describe_type
from standfast._src.items.history import canonical, deduplicate, normalise, sanitise_for_store, without_more_copies
from standfast._src.items.items import ItemHelpers
from standfast._src.runs.engine.append_log import Log
from standfast._src.runs.engine.run import Run, Verdict, View, begin, evolve
from standfast._src.runs.loop.run_scope import RunScope
from standfast._src.runs.steps.run_guardrails import input_guardrails
from standfast._src.sessions.item_sizes import check_item_sizes


def create_run(scope: RunScope, run_id: str | None = None) -> Run:
    """A run before anything was read, sent or stored."""
    arguments = scope.arguments
    items = own_items(arguments.given_input)
    if arguments.owner.kind == "session":
        # What no session takes is refused now, not when tools have run and nothing can be stored.
        encoded = [encode(item) for item in items]
        if scope.session is not None:
            check_item_sizes(encoded, scope.session.item_bytes_max)
    run = begin(
        run_id=run_id or arguments.run_id or arguments.config.run_id or uuid.uuid4().hex,
        agent=scope.graph.key(arguments.agent),
        input_items=items,
        owner=arguments.owner,
        max_turns=arguments.max_turns,
        verdict=_first_verdict(scope),
        input_is_text=isinstance(arguments.given_input, str),
        inside=arguments.inside,
        is_apart=scope.session is not None and arguments.inside is not None and scope.session.has_namesake_around(),
        is_beside=scope.is_beside_outermost,
    )
    config = arguments.config
    return run if config.limits is None and config.budgets is None else under_limits(run, config)


def under_limits(run: Run, config: RunConfig) -> Run:
    """Return the run under the limits and budgets of a config; missing settings stay as saved (F9, F10)."""
    spec = run.spec
    if config.limits is not None:
        spec = spec.with_limits(config.limits.as_data())
    if config.budgets is not None:
        known = {one.id: one for one in spec.budgets}
        for budget in config.budgets:
            given = budget.as_data(spec.owner.id or "")
            known[given.id] = evolve(known.get(given.id, given), limit=given.limit)
        spec = spec.with_budgets(list(known.values()))
    return run if spec is run.spec else evolve(run, spec=spec)


async def with_filtered_input(scope: RunScope, run: Run) -> Run:
    """Return the fresh run with the input made by `stored_input_filter`; without a filter, the run unchanged.

    The filter comes before all other code. Removed content reaches no session, saved run, guardrail, span or model.
    """
    chosen, arguments = scope.config.stored_input_filter, scope.arguments
    if chosen is None or arguments.resumed is not None:
        return run
    with scope.enter_user_code():
        kept = await maybe_await(chosen([copy_json(entry.item) for entry in run.ledger]))
    _check_items("stored_input_filter", kept, "Return the list of items to store.")
    given: str | list[Item] = [copy_json(item) for item in kept]
    says = kept[0].get("content") if run.spec.input_is_text and len(kept) == 1 else None
    if isinstance(says, str) and kept == ItemHelpers.input_to_new_input_list(says):
        given = says
    arguments.given_input = scope.given_input = given
    return create_run(scope, run.spec.run_id)


def own_items(given: str | list[Item]) -> list[Item]:
    """The run's own input as items: normalised and de-duplicated, sharing nothing with the caller's (C1, C2)."""
    if not isinstance(given, str | list):
        raise UserError(f"the input of a run is {describe_type(given)}", "Give a text, a list of items, or a RunState.")
    if isinstance(given, str):
        return ItemHelpers.input_to_new_input_list(given)
    # Questions to a person are left out here, where no ordinal counts them yet (C5).
    for place, item in enumerate(given):
        if isinstance(item, dict) and "content" in item and "role" not in item and "type" not in item:
            raise UserError(
                f"item {place} of the input has content, and neither a role nor a type",
                'Say whose it is: {"role": "user", "content": ...}.',
            )
    items = [sanitise_for_store(normalise(item)) for item in ItemHelpers.input_to_new_input_list(given)]
    return deduplicate([item for item in items if item is not None])


def _first_verdict(scope: RunScope) -> Verdict:
    guardrails = input_guardrails(scope, scope.graph.start)
    if not guardrails:
        return "passed"
    # What a server has taken cannot be taken back: there, every guardrail comes first (D10).
    if scope.arguments.owner.kind == "conversation" or any(not one.run_in_parallel for one in guardrails):
        return "blocking"
    return "parallel"


# --- what the model sees of it ---------------------------------------------------------------------------------------


async def as_shown(scope: RunScope, run: Run) -> Run:
    """Return the fresh run with the view made by `session_input_callback`; without a callback, the run unchanged."""
    callback = scope.config.session_input_callback
    if callback is None or scope.session is None:
        return run
    if not callable(callback):
        raise UserError(
            f"session_input_callback is {describe_type(callback)}", "Give a function (history, new) -> list."
        )
    scope.history = await scope.session.read()
    history, own = [*scope.history, *scope.seen.open_turns], [entry.item for entry in run.ledger]
    with scope.enter_user_code():
        seen = await maybe_await(callback([copy_json(item) for item in history], [copy_json(item) for item in own]))
    _check_items("session_input_callback", seen, "Return the list of items the model sees.")
    base = scope.shown_base = [copy_json(item) for item in without_more_copies(seen, [*history, *own])]
    return evolve(run, views=Log([View(tuple(_without_open_turns(scope, base)), len(own))]))


def _without_open_turns(scope: RunScope, base: list[Item]) -> list[Item]:
    """Remove the open turns of other runs from a callback's view: they belong in requests only (C15)."""
    shown = [canonical(item) for item in scope.seen.open_turns]
    kept = []
    for item in base:
        if shown and (said := canonical(item)) in shown:
            shown.remove(said)
        else:
            kept.append(item)
    return kept


def _check_items(name: str, returned: object, remedy: str) -> None:
    """Raise UserError unless a function of the caller returned a list of dicts."""
    if not isinstance(returned, list):
        raise UserError(f"{name} returned {describe_type(returned)}", remedy)
    strangers = {type(item).__name__ for item in returned if not isinstance(item, dict)}
    if strangers:
        raise UserError(
            f"{name} returned a list with {', '.join(sorted(strangers))} in it",
            "Every item is a dict in the Responses input format.",
        )
