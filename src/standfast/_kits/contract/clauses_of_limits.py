"""Part F of the contract, continued: limits of a run, and budgets."""

from __future__ import annotations

from standfast._kits.contract.clause import Clause

LIMITS: tuple[Clause, ...] = (
    Clause.group(
        "F9",
        "limits of a run",
        "A limit of a run holds for all requests and tool calls made in its name: nested runs, attempts that failed "
        "and earlier lives of a saved run are counted, and a request is counted before it leaves.",
        "It is checked before each request and each call: requests and calls never exceed it, tokens and money only "
        "by what the replies under way turn out to have used.",
        "A run that meets its limit stops between turns: of a turn whose calls do not all fit none begins, and calls "
        "under way end.",
        "It goes on under a higher limit from where it stopped: no reply in hand is asked for again, and no call that "
        "returned is repeated.",
        "Under a limit in money, no request leaves to a model without a known price.",
        "A run without limits makes no commit and no round trip because of them.",
    ),
    Clause.group(
        "F10",
        "budgets",
        "A budget is shared by all processes on a store: a request leaves only after an estimate of its cost was "
        "reserved in the store, and all runs together never reserve more than is left.",
        "A budget is exceeded by no more than what replies cost above their estimate.",
        "What a reply cost replaces its reservation in the step that stores its turn; for every reply that arrived and "
        "was saved the sum is exact, also after a crash.",
        "What cannot be known (a request whose process died or whose answer was lost) counts as its estimate, and is "
        "marked as such.",
        "Without a price, without a store that answers, or above what is left, no request leaves.",
        "A run that meets its budget stops between turns, and goes on when there is more.",
        "A run without budgets makes no commit and no round trip because of them.",
        ability="record",
    ),
)
