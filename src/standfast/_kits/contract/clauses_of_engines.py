"""Part G of the contract: runs as jobs of an engine."""

from __future__ import annotations

from standfast._kits.contract.clause import Clause

PART_G: tuple[Clause, ...] = (
    Clause.group(
        "G1",
        "engines carry names",
        "An engine carries a run's name and nothing of the run: what it keeps of a job is 10 KB at most, whatever the "
        "length of the conversation.",
        "A job that is delivered twice, late, or again because its acknowledgement was lost ends with the one result "
        "of its run.",
        "Messages of one session that are delivered in another order are all answered, and are heard in the order in "
        "which they were sent.",
        "Wherever a worker is killed, stopped past its lease or told to stop, every effect happens once or is said to "
        "be unknown.",
        "Every accepted message is answered and every job ends, also if the process that accepted it died before the "
        "engine heard, no worker was there for a while, or the server of the engine or of the store was restarted.",
        "A decision or a cancellation counts once, whenever it is made, and also if the engine never hears of it.",
    ),
)
