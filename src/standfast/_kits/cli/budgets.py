"""`standfast budgets`: look at the budgets of a store, and change them (F10)."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from standfast._kits.cli.arguments import Commands, Parser, command, group, open_named_store
from standfast._kits.cli.output import Column, Output
from standfast._kits.operators.exit_codes import DONE

if TYPE_CHECKING:
    from standfast._kits.operators.budgets import BudgetView

BUDGET = "standfast.budget/1"
BUDGETS = (
    Column("BUDGET", "budget", gives_way=True),
    Column("PERIOD", "period"),
    Column("LIMIT", "limit"),
    Column("USED", "used"),
    Column("LEFT", "left"),
    Column("UNKNOWN", "unknown"),
    Column("RESERVED", "reserved"),
)
ID = "total/usd/KEY, day/tokens/KEY or conversation/requests/SESSION"


def add(commands: Commands[Parser]) -> None:
    """Add `budgets` and the commands below it."""
    below = group(commands, "budgets", "budgets that runs share: ls, set, unset")
    command(
        below,
        "ls",
        ls,
        "list the budgets of a store",
        description="List the budgets, each in its present day: what runs have spent and reserved, and what of it is an"
        " estimate because the outcome of a request is not known.",
    )
    parser = command(below, "set", set_limit, "set the limit of a budget", changes=True)
    parser.add_argument("budget", metavar="BUDGET", help=ID)
    parser.add_argument("amount", metavar="AMOUNT", help="dollars for usd, else a whole number")
    parser = command(below, "unset", set_limit, "let programs give the limit of a budget again", changes=True)
    parser.add_argument("budget", metavar="BUDGET", help=ID)


async def ls(args: argparse.Namespace, out: Output) -> int:
    """List the budgets."""
    async with open_named_store(args) as store:
        found = await store.budgets()
    out.table(BUDGET, BUDGETS, map(fields, found))
    if not found:
        out.note("no run has drawn on a budget of this store, and none is set")
    return DONE


async def set_limit(args: argparse.Namespace, out: Output) -> int:
    """Set or remove a limit, and print the budget."""
    async with open_named_store(args, read_only=False) as store:
        view = await store.set_budget(args.budget, getattr(args, "amount", None))
    if out.as_json:
        out.record(BUDGET, fields(view))
    else:
        limit = "as programs give it" if view.limit is None else view.format(view.limit)
        out.line(
            f"budget {view.budget_id}: limit {limit}, used {view.format(view.used)}, left {view.format(view.left)}"
        )
    return DONE


def fields(view: BudgetView) -> dict[str, Any]:
    """The fields of a budget as JSON; amounts are text, exact."""
    return {
        "budget": view.budget_id,
        "period": view.period,
        "limit": view.format(view.limit),
        "used": view.format(view.used),
        "left": view.format(view.left),
        "unknown": view.format(view.unknown),
        "reserved": view.format(view.reserved),
        "runs": sorted(view.held),
    }
