"""Part F of the contract: messages to a conversation in any state, and signals to a run."""

from __future__ import annotations

from standfast._kits.contract.clause import Clause

PART_F: tuple[Clause, ...] = (
    Clause.group(
        "F1",
        "heard once",
        "A message that `send` has acknowledged is durable: any process with the store sends it, with or without the "
        "agents' code.",
        "It becomes history once, in one place and by one run, whichever process dies.",
        "Sent again under its id it is not heard again: the receipt tells what became of it, also after its record was "
        "pruned, the session was cleared or the history was undone.",
        "Another content under the same id is refused.",
        "It ends only by being heard, refused by a guardrail (named), taken back, or with its session.",
        "A message whose own run fails before anything of it happened waits again, and is begun at most 3 times by "
        "itself; then it is listed as failed, and the next run hears it.",
        "A fork knows the messages that its history has; a move brings those that wait.",
        "A message to a sealed session without its key is refused.",
        ability="send",
    ),
    Clause.group(
        "F2",
        "heard between turns",
        "A message to a conversation that no run has is begun by `send` itself where that has the agent, or by "
        "`recover`.",
        "A run under way hears it before its next request, behind all that is stored; never within a turn, never as a "
        "nested run, and never under a lease that may be lost.",
        "Where no further request comes, the next run hears it.",
        "What was sent before a run began stands before that run's input.",
        "`when_busy`: `steer` (default), `queue` (only the next run hears it), `interrupt` (so, and the run under way "
        "stops after its turn), `reject` (refused while a run has the session). `RunConfig(messages='queue')`: the run "
        "hears nothing after it began, and is not interrupted.",
        "A process that begins messages with `Runner.send` begins those too that came too late for the last request of "
        "its run.",
        ability="send",
    ),
    Clause(
        "F3",
        "order of messages",
        "Messages of one sender are heard in the order in which they were acknowledged, and none overtakes one that "
        "was acknowledged before it was sent, also where workers begin them in any order.",
        "send",
    ),
    Clause.group(
        "F4",
        "guarded messages",
        "Input guardrails judge every message before it is in a request or in history.",
        "A refused message is in neither, and does not end the run that refused it.",
        "A guardrail that raises while a run is under way leaves the message waiting, and the run goes on.",
        ability="send",
    ),
    Clause.group(
        "F5",
        "what messages cost",
        "A run that has heard a message is saved.",
        "A run that hears none makes no commit and no round trip because of messages.",
        ability="send",
    ),
    Clause.group(
        "F7",
        "said to a run",
        "A decision or a wish to cancel that comes while a worker is at the run is kept, and applied once: by that "
        "worker, or by the next one that takes the run.",
        "A run that would pause with a kept decision goes on with it, or is listed as ready.",
        "A wish to cancel ends the run by its worker, at its next step or the next renewal of its lease; its turn is "
        "stored whole, as C8 says, and its caller gets RunCancelledError.",
        "It never takes the run from its worker.",
        "What was kept moves with its session.",
        ability="runs",
    ),
)
