"""Parts A and B of the contract: what any session promises, and what one with abilities does."""

from __future__ import annotations

from standfast._kits.contract.clause import Clause

PART_A: tuple[Clause, ...] = (
    Clause(
        "A1",
        "order",
        "`get_items()` returns all items in the order they were appended.",
    ),
    Clause(
        "A2",
        "limit",
        "`get_items(limit=N)` returns the latest N valid items, in chronological order; more than there are "
        "returns all; 0 returns none; a negative or non-integer limit is refused with a clear error, by "
        "`get_items` and by `SessionSettings`.",
    ),
    Clause(
        "A3",
        "default limit",
        "An explicit limit overrides the session's default; `SessionSettings.limit` applies when none is given, "
        "wrappers included; settings given to a run overlay the session's own. Copy, export, fork, compaction and "
        "repair ignore the default limit.",
    ),
    Clause(
        "A4",
        "no clocks",
        "Order does not depend on clocks: items written in one instant, or after a clock went back or a time zone "
        "changed, keep their order.",
    ),
    Clause(
        "A5",
        "whole batches",
        "`add_items` keeps the batch's order and is all or nothing: no reader, in this process or another, ever "
        "sees part of a batch. A batch includes every index and metadata row needed to read it.",
    ),
    Clause.group(
        "A6",
        "refused writes",
        "A batch the store refused or never received (not JSON, larger than `SessionSettings.max_item_bytes`, full "
        "disk, no connection) leaves earlier history as it was and raises; nothing of it appears later.",
        "If the request may have been taken, the error is `OutcomeUnknownError`: the batch is there whole or not at "
        "all, and repeating it under B1 is safe.",
        "`add_items` of our stores, like every write that can lose its answer, carries something by which a repeat is "
        "known and is repeated until the deadline.",
    ),
    Clause(
        "A7",
        "empty batch",
        "An empty batch changes nothing.",
    ),
    Clause(
        "A8",
        "own retries",
        "A backend's own internal retry never duplicates a batch and never pops a second item.",
    ),
    Clause(
        "A9",
        "first writers",
        "Concurrent first writers on a fresh store (threads, tasks, processes) all succeed; no table, key or row "
        "is created twice or lost. Constructors do no I/O; the first operation opens and migrates.",
    ),
    Clause(
        "A10",
        "concurrent writers",
        "Concurrent writers on one session lose nothing, and batches do not interleave. Grouping commits is "
        "invisible: one batch's failure or cancellation never touches another's, also where the store refuses it only "
        "at the commit (a deferred constraint).",
    ),
    Clause(
        "A11",
        "pop",
        "`pop_item` removes and returns exactly the newest valid item, atomically: two concurrent pops never "
        "return the same item; an empty session gives `None`.",
    ),
    Clause(
        "A12",
        "clear",
        "`clear_session` removes everything stored for this id (items, corrupt records, generations, open turns "
        "of runs that nobody holds, metadata) and nothing of another; at most writer counts and the fencing "
        "number remain. Written again, it is a new session with a new creation time; a run under way keeps its "
        "record, and what it stores later belongs to the new history.",
    ),
    Clause.group(
        "A13",
        "cancellation and deadlines",
        "Cancelling any method at any await leaves no lock, transaction or connection stranded: the store is as "
        "before or after the operation, and the next call works.",
        "When `CancelledError` leaves `pop_item`, the item is at its own place in the order, or is put back there "
        "before this process's next write (a network store whose reply was lost says that the outcome is unknown; "
        "only a crash in between can lose it).",
        "Each operation has a deadline (`timeout_s`, default 30, lock waits included): `StoreTimeoutError`, or "
        "`OutcomeUnknownError` if the request had left.",
        "A cancelled caller gets control back at once, even if the store stalls.",
        "A write that is still queued when its caller is cancelled is withdrawn and never done later.",
        "On a network a write that has left may still be done, but never after this process's next operation on that "
        "session.",
    ),
    Clause(
        "A14",
        "corrupt records",
        "Corrupt means: Python's `json.loads` gives no object. A corrupt record never hides valid history and "
        "never causes another record to be deleted. It stays in place until cleared or repaired, is listed by "
        "`corrupt_records()`, and is logged once per process without its content.",
    ),
    Clause(
        "A15",
        "configured names",
        "Configured names apply to every operation, wrappers included. Table names match "
        "`[A-Za-z_][A-Za-z0-9_]{0,62}` (PostgreSQL: with an optional schema), are always quoted and must differ; "
        "others are refused before any query runs. Key prefixes are any non-empty string; two of which one "
        "continues the other can meet in the peer's layout, and the docs say so.",
    ),
    Clause(
        "A16",
        "times",
        "Creation time is set once; update time moves on append, pop, rewind, replace and restore, not on reads, "
        "leases or empty batches, never moves back and has sub-second resolution. Neither, nor any backend id, "
        "appears inside an item.",
    ),
    Clause.group(
        "A17",
        "exact values",
        "What was stored comes back equal, key order and int/float kind included; unknown fields are kept.",
        "Integers of any size, NUL and lone surrogates round-trip (or are refused by a store that cannot hold them, "
        "A6).",
        "An item is stored only if it decodes to an equal value: NaN, infinities, tuples, bytes and non-string keys "
        "are refused, never changed.",
        "What the peer's `json.dumps` wrote reads as Python's `json` reads it.",
        "The caller's objects are never mutated nor shared with the store.",
    ),
    Clause(
        "A18",
        "session ids",
        "Session ids are data: any non-empty string is used exactly or refused before any query; two different "
        "ids never meet.",
    ),
    Clause(
        "A19",
        "close",
        "`close` releases what the session opened and nothing that was handed to it (engine, client, pool, "
        "connection); it is idempotent and takes effect when called: on memory and SQLite without `await` and without "
        "a loop, and may be awaited. A shared engine may stay for some seconds after its last session, never over a "
        "fork, an ended loop or a replaced file; `linger_s=0`, `Store.close()` and the end of the process end it at "
        "once. Use after close says so.",
    ),
    Clause(
        "A20",
        "expiry",
        "An expiry, where configured (seconds > 0), covers items, metadata, generations, counts and obligations "
        "as one and is renewed in the same step by every change; not by reads, empty batches or leases; beside "
        "the peer, as far as all writers configure it.",
    ),
    Clause(
        "A21",
        "bounded resources",
        "Connections, descriptors and threads are bounded by a constant, with 10,000 session objects or files "
        "closed or merely dropped: at most 8 engines stay after their last session. The same path or URL and options "
        "share one engine (per loop where the library demands it). `:memory:` is a private store per object, without "
        "a thread each.",
    ),
    Clause(
        "A22",
        "threads, loops, forks",
        "A session object may be used from several threads and event loops, at once and one after another "
        "(`asyncio.run` twice); it holds nothing that belongs to a loop that has ended. A handed-in loop-bound "
        "client is refused from another loop, never hangs. After `os.fork` the child opens its own, and a fork while "
        "any lock of ours is held leaves a child that works, key files included.",
    ),
    Clause(
        "A23",
        "durability",
        "Acknowledged means durable: after `kill -9` of the process (SQLite files; PostgreSQL with "
        "`synchronous_commit` on, which is asked for) every acknowledged batch is there, whole; "
        "`synchronous=FULL` is asserted separately, since SIGKILL does not prove fsync. What Redis promises is "
        "stated for each persistence setting.",
    ),
)

PART_B: tuple[Clause, ...] = (
    Clause.group(
        "B1",
        "exactly-once append",
        "Ordinals already accepted from this writer are skipped, the rest are stored, all or none: repeated after a "
        "lost acknowledgement or a crash, with the same or a longer batch, each item is stored once.",
        "A gap is refused.",
        "An accepted ordinal is skipped only if its digest (given by the caller, so that an encrypting wrapper passes "
        "it through) is the same; another digest is refused with `SessionConflictError` and nothing is written.",
        "A writer's count survives pop, replace, undo and clear, so a late repeat brings nothing back; only rewind "
        "lowers it; it ends with the session's expiry.",
        "A fork copies the count as of the fork point.",
        "`written(writer)` returns that writer's items in order.",
        ability="append",
    ),
    Clause(
        "B2",
        "compare-and-set",
        "A change may name the head it expects; if the session has moved, nothing is written and the caller gets "
        "`SessionConflictError` with both heads. Equal heads mean equal histories, whoever wrote; a head may also "
        "move where the history did not.",
        ability="head",
    ),
    Clause(
        "B3",
        "atomic replace",
        "`replace(items, upto=head)` puts `items` in place of the history up to `head` in one step; what was "
        "appended after stays behind them, in order. If anything up to `head` was popped, rewound, cleared or "
        "replaced: `SessionConflictError`, nothing written. A crash leaves old or new. The replaced part becomes "
        "a generation (default: the last 3 are kept).",
        ability="replace",
    ),
    Clause(
        "B4",
        "undo",
        "Restoring puts a generation back where its replacement stands, keeps items appended since, and keeps "
        "what it displaced: undo can be undone.",
        ability="replace",
    ),
    Clause(
        "B5",
        "exact rewind",
        "`rewind(writer, to)` removes that writer's ordinals from `to` on if they are the whole tail, in one "
        "step; its count becomes `to`. Anything of another writer or a corrupt record behind them: refused, "
        "nothing changed.",
        ability="rewind",
    ),
    Clause(
        "B6",
        "fork",
        "A new session continues from any position of the current history or of a kept generation, made in one "
        "step; the two then diverge and never see each other's writes. `recode` may re-encode each item on the "
        "way (sealing), tags and counts kept.",
        ability="fork",
    ),
    Clause.group(
        "B7",
        "lease",
        "At most one holder per session across processes.",
        "A lease ends by the store's clock at the latest its own ttl after its last renewal, whatever clocks did.",
        "A lease is renewed off the caller's loop (a handed-in client that belongs to a loop: by that loop) for as "
        "long as the run that took it lives, and given back when that ends in any way: a fault, a close, a "
        "cancellation repeated without end, a loop that was closed.",
        "In one process waiters are served in the order of asking; between processes a later asker never overtakes "
        "one that keeps waiting (a ticket that lapses with its waiter).",
        "Many waiters cost the store what one does.",
        "Each acquisition raises a number; a write that carries a lower one is refused in the writing transaction.",
        "Saving that an effect begins is such a write wherever one store has both the session and the run (elsewhere "
        "the run's revision, which settling raises first, refuses it).",
        "An operator can take a lease away: that only raises the number.",
        "Plain writes, and writers that know no leases, are not blocked, but B2 notices them.",
        ability="lease",
    ),
    Clause(
        "B8",
        "pages",
        "History can be read in pages from any position in time proportional to the page.",
        ability="page",
    ),
    Clause(
        "B9",
        "listing",
        "Sessions of a store can be listed and counted, newest change first (by the store's own order, not the "
        "wall clock), in pages, in time proportional to the page, for what standfast wrote; foreign writes are "
        "found by the store's own order (SQLite: rows behind the highest id seen) at a cost that follows their "
        "number, and are ordered by their newest record.",
        ability="list",
    ),
    Clause.group(
        "B10",
        "open data",
        "On the peer's tables and keys, additions are further tables, nullable columns and an index (or further keys, "
        "and white space behind a JSON item), no triggers.",
        "The peer's `created_at` may be raised so that it reads our order, and concurrent foreign rows get their "
        "order with our next write.",
        "Head, count and tail owner are derived from what the peer writes too, never from a counter it does not "
        "maintain; rows without a writer move the head and are never rewound.",
        "Generations and open turns are not among the rows the peer reads.",
        "All of B holds after, and during, the peer's own append, pop and clear (tested with the real package).",
        ability="append",
    ),
    Clause(
        "B11",
        "records",
        "`records(before=, after=, limit)` reads records in pages, in both directions, in time proportional to the "
        "page. A record carries a cursor, the item (or why it is none), when it was written as exactly as the store "
        "knows, who wrote it and as which of theirs, and the generation it replaced. A cursor goes on working while "
        "others append, pop and rewind; one of a history that was replaced, undone or cleared since is refused.",
        ability="records",
    ),
    Clause(
        "B12",
        "watch",
        "`watch(after=)` gives every record behind a cursor, in order and once, whoever writes it and in whatever "
        "process, and then each new one as it comes; a history that is replaced or cleared under it ends it by name.",
        ability="watch",
    ),
    Clause(
        "B13",
        "search",
        "`search(text)` finds every record whose words hold the text, compared as `str.casefold` compares, newest "
        "first, in pages, without missing one or giving one twice. It costs what it looks at, and gives back what it "
        "has after a bounded part.",
        ability="search",
    ),
    Clause(
        "B14",
        "holder and origin",
        "`holder()` says who holds the session and until when, by the store's clock, and None when nobody does. "
        "`origin()` says which session a fork came from, and from which position; a clear forgets it.",
        ability="holder",
    ),
    Clause(
        "B15",
        "usage",
        "What each reply of a run cost is kept with the conversation in the step that stores its turn, once however "
        "often that step is repeated; it outlives the run's record and ends with a clear. A fork begins with none.",
        ability="usage",
    ),
    Clause.group(
        "B16",
        "a whole store",
        "A store lists its sessions with item count, first words and waiting calls, by prefix, time of change and "
        "what waits, in pages that cost what they show.",
        "It searches all of its sessions without missing or doubling a record, and sums what they cost.",
        "A session that is copied to another store and back is the same session: items, writers and their numbers, "
        "kept generations, usage and origin.",
        "A file that is imported touches its own session only; runs that can act come in when they are asked for, and "
        "decisions only from a signed file.",
        "Opened to be read, a store shows the same and refuses whatever would change something with "
        "`StoreReadOnlyError`.",
        "Opened to be read, a store that is a file leaves no byte, no mode and no file beside it changed.",
        "A sealed session notices, at every read that starts at the end, that the end was cut off or that an older row "
        "stands behind it.",
        "It notices, at a whole read, a row that is missing between rows of its writer or batch, and, where a run "
        "begins, an open run that was hidden.",
        ability="records",
    ),
    Clause.group(
        "B17",
        "a run without its agents",
        "A saved run can be seen without its agents: status, what it does, turns, calls, decisions and usage.",
        "A decision made without the agents is saved with who decided and when, and bound as in C16.",
        "A parked run decided so is `ready`, is listed as such, and one worker resumes it.",
        "Of two who decide at once the second is told who was first, and nothing is changed.",
        "A run that a worker is at stays with that worker: a decision about a call that waits is kept for it (F7).",
        "Giving a run up closes its turn as C8 says.",
        "On the inspector's page a call is approved only as it was shown: the model's text, untouched and whole, and "
        "the values that the tool gets. The page answers no request without its token, which is never in a cookie.",
        ability="runs",
    ),
)
