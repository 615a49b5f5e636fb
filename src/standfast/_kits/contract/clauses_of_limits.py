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
)
