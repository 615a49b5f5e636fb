"""Kinds of the doctor's findings, in a single table for every message and for the documentation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["broken", "watch", "note"]
"""`broken`: something does not work as it stands. `watch`: it needs a person. `note`: nothing is wrong."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Kind of finding: severity, description, effect and remedy."""

    level: Level
    what: str
    effect: str
    remedy: str
    repairable: bool = False
    """Whether `repair_store` can repair it."""


FIX = "standfast doctor --repair takes it out, and writes an undo file first."

KINDS: dict[str, Kind] = {
    # --- items of a session
    "call_without_output": Kind(
        "broken",
        "a call without an output",
        "Requests leave it out, each time; a program without that rule is refused by its provider.",
        FIX,
        repairable=True,
    ),
    "output_without_call": Kind(
        "broken",
        "an output without its call",
        "Requests leave it out, each time; a program without that rule is refused by its provider.",
        FIX,
        repairable=True,
    ),
    "cut_reasoning": Kind(
        "broken",
        "reasoning that leads to nothing: what came behind it is missing or has to leave",
        "A provider refuses a request with reasoning that nothing follows.",
        FIX,
        repairable=True,
    ),
    "second_copy": Kind(
        "broken",
        "a second copy of an item with the same id",
        "A provider refuses a request with an id that stands there twice.",
        FIX,
        repairable=True,
    ),
    "corrupt_record": Kind(
        "broken",
        "a record that is no JSON object",
        "Reads leave it out. A rewind behind it is refused. What it said is lost to the conversation.",
        FIX,
        repairable=True,
    ),
    "unopened_record": Kind(
        "broken",
        "a sealed record that does not open",
        "Reads leave it out, or raise. It was altered, moved, or sealed with a key that was not given.",
        "Give the key it was sealed with; EncryptedSession.repair() removes it for good.",
    ),
    "sealed_session": Kind(
        "note",
        "a session whose records are sealed",
        "Its items were not examined: the store does not hold them in the open.",
        "Examine it through a store of EncryptedSession objects with its key.",
    ),
    # --- leases and runs
    "stuck_lease": Kind(
        "watch",
        "a lease whose holder is gone, or that is held far beyond its last sign of life",
        "Others may wait for the session until its time is over.",
        "standfast runs unlock takes it away; whoever has it can then store nothing more under it.",
    ),
    "numbers_went_back": Kind(
        "broken",
        "a lease number that is lower than one that was given out before",
        "The store was put back to an earlier time, or lost writes. Its runs would repeat what they did since.",
        "Stop the workers, then standfast runs hold STORE --all: every run that could act waits for a person.",
    ),
    "waiting_approval": Kind(
        "watch",
        "a call that has waited for a person for long",
        "Its run does nothing until somebody decides.",
        "standfast runs show says what it asks; runs approve or runs reject decides.",
    ),
    "untaken_run": Kind(
        "watch",
        "a run that was decided, and that no worker has taken",
        "Its decision has no effect until a worker resumes it.",
        "Resume it with Runner.resume in a program that has its agents, or standfast runs resume.",
    ),
    "worker_gone": Kind(
        "watch",
        "a run under way whose worker has died, hangs, or holds no lease",
        "Its turn is not finished. The next run on the session tells of it; a call that had begun is in doubt.",
        "standfast runs show says which. Resume it with Runner.resume, or give it up with standfast runs cancel.",
    ),
    "open_call": Kind(
        "watch",
        "a call that had begun when its run was last saved, and has no result",
        "Nobody knows whether it took effect. Resuming settles it by the tool's policy, and never repeats it by guess.",
        "standfast runs show says which; resume or cancel its run.",
    ),
    "unreadable_run": Kind(
        "broken",
        "a saved run that cannot be read",
        "It cannot be resumed, decided or cancelled. It may be sealed, or damaged.",
        "Open its store with its key; or remove it with Store.delete_run().",
    ),
    "lost_run": Kind(
        "broken",
        "an open run that its session names, and whose record is gone",
        "Whoever takes the session looks for it in vain; nothing of it can be resumed.",
        "Clear or copy the session to be rid of the entry; a backup may have the run.",
    ),
    "damaged_cell": Kind(
        "broken",
        "a cell of a session that cannot be read",
        "Its items can be read; whatever needs the cell is refused: a run, an undo, a copy, or what it shows.",
        "Restore a backup. Or read its items, add them to a new session, and clear this one.",
    ),
    "damaged_labels": Kind(
        "broken",
        "a saved run whose labels cannot be read",
        "Listings do not find it by status or session, and recover does not go on with it.",
        "Resume it by its id with Runner.resume, which writes them anew; or remove it with Store.delete_run().",
    ),
    "run_without_session": Kind(
        "watch",
        "a run that is done, of a session that is not there",
        "Its record takes room and belongs to nothing: another program removed the session.",
        "standfast runs prune forgets ended runs.",
    ),
    # --- times
    "clock_back": Kind(
        "watch",
        "records that were written before those in front of them, by their times",
        "A clock was set back. Order is not affected; times, listings by time and ages are wrong.",
        "Check the time service of the machines that write.",
    ),
    "clock_ahead": Kind(
        "watch",
        "a time that lies in the future",
        "A clock is or was ahead. Ages are wrong, and the doctor skips sessions whose last change is in the future.",
        "Check the time service of this machine, of the store's server, and of the machines that write.",
    ),
    # --- the store
    "rows_without_session": Kind(
        "broken",
        "messages whose session is not there",
        "No listing shows them; reading under their session's id does.",
        "Export the session by its id, or remove the rows with SQLite's own program.",
    ),
    "rows_without_generation": Kind(
        "watch",
        "archived records that belong to no kept generation",
        "They take room, and nothing reads them.",
        "Remove them with SQLite's own program, or copy the store with standfast sessions copy.",
    ),
    "older_layout": Kind(
        "note",
        "tables of an older layout",
        "Reading works as it is. The first write brings them up to date once STANDFAST_NEW_LAYOUTS=1 allows that.",
        "Nothing now. Set it when every worker runs this release: an older one refuses the file from then on.",
    ),
    "foreign_layout": Kind(
        "note",
        "tables of the OpenAI Agents SDK that standfast has not written to",
        "Reading works as it is. The first write of standfast adds columns and tables, which the SDK ignores.",
        "There is nothing to do.",
    ),
    "newer_layout": Kind(
        "broken",
        "tables of a layout that this release does not know",
        "Nothing in it can be read or written by this release; it was left as it is.",
        "Upgrade standfast.",
    ),
    "damaged_layout": Kind(
        "broken",
        "tables whose layout cannot be known, or a view where a table belongs",
        "Nothing in the file is read or written; it was left as it is.",
        "Do not use the file: another program has changed it. Restore a backup.",
    ),
    "unsafe_sqlite": Kind(
        "watch",
        "an SQLite with the log-reset fault, on a file that another program has written to",
        "If that program checkpoints during a write, pages can be lost: it does not know standfast's lock.",
        "Use SQLite 3.51.3 or newer (3.50.7 and 3.44.6 have the fix too) in both programs.",
    ),
    "old_sqlite": Kind(
        "note",
        "an SQLite with the log-reset fault",
        "standfast's lock protects the file from it as long as only standfast writes.",
        "Use SQLite 3.51.3 or newer before another program writes to the file.",
    ),
    "long_log": Kind(
        "watch",
        "a log that has grown far beyond its database",
        "Reads get slower, and the disk fills. A reader that never ends keeps the log from being folded back.",
        "Find the process that has the file open and reads for long; then run PRAGMA wal_checkpoint(TRUNCATE).",
    ),
    "network_file_system": Kind(
        "broken",
        "a database file on a network file system",
        "SQLite's locks and its log's shared memory do not work there: the file can be damaged.",
        "Move it to a local disk, or use Redis or PostgreSQL.",
    ),
    "foreign_owner": Kind(
        "broken",
        "a file beside the database that belongs to another user than the database",
        "The database's own user may be unable to open it.",
        "Give it the owner, group and mode of the database, or remove it while no program has the database open.",
    ),
    "damaged_file": Kind(
        "broken",
        "a database file that SQLite finds damaged",
        "Reads can fail or give wrong records; writing makes it worse.",
        "Stop all writers, keep a copy, and restore a backup; sqlite3's .recover saves what can be read.",
    ),
}
"""Every kind of finding, by its name."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Finding of the doctor: description, place, effect and remedy."""

    kind: str
    """Its name in `KINDS`."""
    where: str
    """For people: the session and item, the run, or the store."""
    what: str
    session_id: str | None = None
    run_id: str | None = None
    index: int | None = None
    """The number of the record in its session, counted from 0, corrupt ones included."""

    @property
    def level(self) -> Level:
        """Severity of the finding."""
        return KINDS[self.kind].level

    @property
    def effect(self) -> str:
        """Effect of the fault."""
        return KINDS[self.kind].effect

    @property
    def remedy(self) -> str:
        """Remedy for the fault."""
        return KINDS[self.kind].remedy

    @property
    def repairable(self) -> bool:
        """True if `repair_store` can repair the fault."""
        return KINDS[self.kind].repairable


def build_finding(
    kind: str,
    where: str,
    detail: str = "",
    *,
    session_id: str | None = None,
    run_id: str | None = None,
    index: int | None = None,
) -> Finding:
    """Build a finding of a kind; `detail` follows the description from the table."""
    what = KINDS[kind].what
    return Finding(kind, where, f"{what} ({detail})" if detail else what, session_id, run_id, index)
