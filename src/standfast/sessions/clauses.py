"""The contract as data: every promise has a name that the kit tests, the docs print and an error may mention.

Part A is what any session promises, part B what a session with abilities promises, part C what a run leaves in a
session, part D who owns a conversation, part E what a voice session does. `ability` is the one a session must declare
for the clause to be its own; None means that every session is held to it.
"""

from __future__ import annotations

from dataclasses import dataclass

from standfast.sessions.protocol import Ability


@dataclass(frozen=True, slots=True)
class Clause:
    """One promise: its id, a title to find it by, what is promised, and the ability it belongs to."""

    id: str
    title: str
    text: str
    ability: Ability | None = None

    @property
    def part(self) -> str:
        """The letter of the part it stands in."""
        return self.id[0]


PARTS: dict[str, str] = {
    "A": "The session protocol: any backend, ours or anybody's",
    "B": "Abilities that a session may declare",
    "C": "What a run persists",
    "D": "Who owns the conversation",
    "E": "A realtime session",
}
"""Letter of a part to its title."""

_A = (
    Clause(
        "A1",
        "order",
        "`get_items()` gives every item, in the order they were appended.",
    ),
    Clause(
        "A2",
        "limit",
        "`get_items(limit=N)` gives the latest N valid items, oldest first; all of them if there are fewer, none "
        "for 0. A negative limit, or one that is no whole number, is refused, by `SessionSettings` too.",
    ),
    Clause(
        "A3",
        "default limit",
        "An explicit limit wins over the session's default, which applies when none is given, also through a "
        "wrapper; settings given to a run lie over the session's. Fork, replace, export and repair see the whole "
        "history.",
    ),
    Clause(
        "A4",
        "no clocks",
        "Order does not come from a clock: items of one instant, and items written after the clock went back or the "
        "time zone changed, keep the order they were written in.",
    ),
    Clause(
        "A5",
        "whole batches",
        "`add_items` keeps the order of its batch and is all or nothing: no reader, in this process or another, "
        "sees part of a batch, nor a batch without the rows needed to read it.",
    ),
    Clause(
        "A6",
        "refused writes",
        "A batch that the store refused or never received (not JSON, full disk, no connection) raises, leaves the "
        "history as it was, and nothing of it appears later. If it may have been taken, the error is "
        "`OutcomeUnknownError`, and the batch is there whole or not at all.",
    ),
    Clause(
        "A7",
        "empty batch",
        "An empty batch changes nothing.",
    ),
    Clause(
        "A8",
        "own retries",
        "A backend's internal retry never stores a batch twice and never pops a second item.",
    ),
    Clause(
        "A9",
        "first writers",
        "First writers on a fresh store all succeed, be they tasks, threads or processes; nothing is made twice or "
        "lost. Constructors do no I/O: the first operation opens and migrates.",
    ),
    Clause(
        "A10",
        "concurrent writers",
        "Concurrent writers on one session lose nothing and their batches do not interleave; one batch's failure or "
        "cancellation never touches another's.",
    ),
    Clause(
        "A11",
        "pop",
        "`pop_item` removes and returns exactly the newest valid item, in one step: two pops never return the same "
        "item, and an empty session gives None.",
    ),
    Clause(
        "A12",
        "clear",
        "`clear_session` removes everything stored for this id (items, corrupt records, generations, times) and "
        "nothing of another id; only writers' counts and the fencing number may remain. Written again, it is new.",
    ),
    Clause(
        "A13",
        "cancellation and deadlines",
        "A call cancelled at any await leaves no lock, transaction or connection behind, and the store as before or "
        "after it; a cancelled pop loses nothing. Every operation has a deadline (`timeout_s`) that ends in "
        "`StoreTimeoutError` or `OutcomeUnknownError`. A cancelled caller gets control back at once, even from a "
        "store that stalls, and what was still queued is never done later.",
    ),
    Clause(
        "A14",
        "corrupt records",
        "A record that Python's `json.loads` reads as no object hides nothing and makes nothing be deleted. It "
        "stays where it is until cleared or repaired, is listed by `corrupt_records()`, and is logged once, without "
        "content.",
    ),
    Clause(
        "A15",
        "configured names",
        "Configured names apply to every operation, also through a wrapper. Table names are plain identifiers of at "
        "most 63 characters, always quoted, and differ from each other; others are refused before any query.",
    ),
    Clause(
        "A16",
        "times",
        "The creation time is set once. The update time moves with every change and with nothing else, never back, "
        "and is finer than a second. Neither, nor any id of the backend, shows up in an item.",
    ),
    Clause(
        "A17",
        "exact values",
        "What was stored comes back equal, key order and int or float kind included; integers of any size, NUL and "
        "lone surrogates too, or they are refused. NaN, infinities, tuples, bytes and keys that are no strings are "
        "refused, never changed. The caller's objects are neither changed nor shared.",
    ),
    Clause(
        "A18",
        "session ids",
        "A session id is data: any non-empty string is used exactly as given, or refused before any query; two "
        "different ids never meet.",
    ),
    Clause(
        "A19",
        "close",
        "`close` releases what the session opened and nothing that was handed to it; it may be repeated, takes "
        "effect when called (on memory and SQLite without `await` or a loop), and use after it says so. A shared "
        "engine closes with its last user.",
    ),
    Clause(
        "A20",
        "expiry",
        "A configured expiry covers everything stored for a session as one and is renewed, in the same step, by "
        "every change and by nothing else.",
    ),
    Clause(
        "A21",
        "bounded resources",
        "Connections, descriptors and threads stay below a constant with 10,000 session objects, closed or merely "
        "dropped. The same path or URL shares one engine.",
    ),
    Clause(
        "A22",
        "threads, loops, forks",
        "A session object may be used from several threads and event loops, at once and one after another, and "
        "holds nothing of a loop that has ended. After `os.fork` the child opens its own.",
    ),
    Clause(
        "A23",
        "durability",
        "Acknowledged means durable: after `kill -9` every acknowledged batch is there, whole, in a store that "
        "outlives its process.",
    ),
)

_B = (
    Clause(
        "B1",
        "exactly-once append",
        "What this writer already appended is skipped and the rest is stored, all or none, so that a repeat after a "
        "lost acknowledgement or a crash, longer or not, stores each item once. A gap is refused; so is another "
        "item under a number already used. The count survives pop, replace, undo and clear; only rewind lowers it.",
        ability="append",
    ),
    Clause(
        "B2",
        "compare-and-set",
        "A change may name the head it expects; if the session has moved, nothing is written and "
        "`SessionConflictError` carries both heads. Equal heads mean equal histories, whoever wrote.",
        ability="head",
    ),
    Clause(
        "B3",
        "atomic replace",
        "`replace` puts items in place of the history up to a head in one step; what was appended since stays "
        "behind them. If anything up to that head has gone, nothing is written. The replaced part becomes a "
        "generation.",
        ability="replace",
    ),
    Clause(
        "B4",
        "undo",
        "Restoring puts a generation back where its replacement stands, keeps what was appended since, and keeps "
        "what it displaced: undo can be undone.",
        ability="replace",
    ),
    Clause(
        "B5",
        "exact rewind",
        "`rewind` removes a writer's items from a number on, in one step, if they are the whole tail; if anything "
        "else stands there, nothing changes.",
        ability="rewind",
    ),
    Clause(
        "B6",
        "fork",
        "A new session continues from any position of the history or of a kept generation, made in one step; the "
        "two never see each other's writes.",
        ability="fork",
    ),
    Clause(
        "B7",
        "lease",
        "At most one holder per session, across processes; it expires if its holder dies. Each acquisition raises a "
        "number, and a write that carries a lower one is refused. Plain writes are not blocked.",
        ability="lease",
    ),
    Clause(
        "B8",
        "pages",
        "History can be read in pages from any position, at a cost that follows the page.",
        ability="page",
    ),
    Clause(
        "B9",
        "listing",
        "The sessions of a store can be listed, newest change first, in pages, and counted.",
        ability="list",
    ),
    Clause(
        "B10",
        "open data",
        "The stored layout is the SDK's with additions only. All of part B holds after, and during, the SDK's own "
        "appends, pops and clears on the same store; what it wrote is never rewound.",
        ability="append",
    ),
)

_C = (
    Clause(
        "C1",
        "two lists",
        "Preparing input gives what the model sees and what this turn adds; stored history is never appended again.",
    ),
    Clause(
        "C2",
        "callbacks",
        "Callbacks and filters get copies and change the model's view only; equal messages are never merged.",
    ),
    Clause(
        "C3",
        "whole turns",
        "Each completed turn is stored when it completes, as one append, its input with the first; a failed request "
        "leaves nothing.",
    ),
    Clause(
        "C4",
        "unfiltered history",
        "Session, `new_items` and saved state keep the unfiltered sequence, whatever a filter hides from the model.",
    ),
    Clause(
        "C5",
        "nothing twice",
        "Nothing is stored twice over streaming, retry, interruption and resume, in any combination.",
    ),
    Clause(
        "C6",
        "guardrails",
        "A tripped input guardrail leaves exactly the accepted input; a tripped output guardrail keeps earlier "
        "turns and drops the rejected message.",
    ),
    Clause(
        "C7",
        "guarded pop",
        "`pop_item` is called in one place, on plain sessions, after comparing the whole suffix; what was popped "
        "wrongly is put back.",
    ),
    Clause(
        "C8",
        "valid history",
        "What a run appends, and what it sends, is always valid for the provider: no call without its output.",
    ),
    Clause(
        "C9",
        "compaction",
        "Compaction replaces history in one step, reads all of it, keeps open calls, and its failure never fails a "
        "stored turn.",
    ),
    Clause(
        "C10",
        "no live objects",
        "Live objects are never stored; a session gets the run context only if all its methods take it.",
    ),
    Clause(
        "C11",
        "one behaviour",
        "Streaming and non-streaming runs of one script leave the same history, usage, results and interruptions.",
    ),
    Clause(
        "C12",
        "after a kill",
        "What survives `kill -9` is stated and tested for each combination of session and run store.",
    ),
    Clause(
        "C13",
        "two runs",
        "Two runs on one session wait for each other (the default), are rejected, or are allowed; never interleaved "
        "unasked.",
    ),
    Clause(
        "C14",
        "gives back",
        "The runner gives back what it borrowed at the end of every run and leaves a handed-in session open.",
    ),
)

_D = (
    Clause(
        "D1",
        "one owner",
        "A conversation has one owner; naming two, or resuming under another, is refused before anything is read or "
        "sent.",
    ),
    Clause(
        "D2",
        "only what is new",
        "A server-owned conversation receives only what the server has not acknowledged, each output once.",
    ),
    Clause(
        "D3",
        "in flight",
        "What a filter returns is saved as in flight before it is sent; on success exactly that is acknowledged.",
    ),
    Clause(
        "D4",
        "response chain",
        "`previous_response_id` follows the latest response that has an id, and the mark belongs to that id.",
    ),
    Clause(
        "D5",
        "sent again",
        "A stateful request is sent again only with evidence that it was not taken, or with explicit leave.",
    ),
    Clause(
        "D6",
        "refused early",
        "A filter's wrong return, and filters that a server-owned conversation cannot honour, are refused before a "
        "model call is paid for.",
    ),
    Clause(
        "D7",
        "resume",
        "A saved state carries the owner and its marks: resuming replays nothing acknowledged and loses nothing "
        "unsent.",
    ),
    Clause(
        "D8",
        "compaction keeps the owner",
        "After compaction a request holds the compacted items or the chain, never both.",
    ),
    Clause(
        "D9",
        "old states",
        "Every version of a saved state that a release wrote is read by all later ones; others are refused by name.",
    ),
    Clause(
        "D10",
        "guardrails first",
        "With `conversation_id`, input guardrails finish before the request is sent.",
    ),
    Clause(
        "D11",
        "debts",
        "A run that ends owing the server tool outputs says so and hands them over.",
    ),
    Clause(
        "D12",
        "replay-ready",
        "`to_input_list()` leaves out unanswered calls and the reasoning before them.",
    ),
)

_E = (
    Clause(
        "E1",
        "nothing before, nothing after",
        "Constructing a voice session does nothing outside the process. Entering acquires; if it fails at any "
        "step, all that was acquired is released, the first error is raised and release errors are attached to "
        "it.",
    ),
    Clause(
        "E2",
        "one owner",
        "After `close` nothing of a session is alive or registered. Code that cannot be stopped is waited for, "
        "then named in an error, and reaches nothing any more. What was pending is reported dropped or, with a "
        "session, kept in the call's record and settled later without a connection.",
    ),
    Clause(
        "E3",
        "close",
        "`close` may be called again, from another task, from a tool or listener, or while others iterate; the "
        "model is closed once. If that fails, iterators still end, every caller gets the error, and it can be "
        "tried again. Iterators deliver what is queued first.",
    ),
    Clause(
        "E4",
        "no failure is lost",
        "A cancelled background task is awaited; an exception in one reaches the event stream or `close`; nobody "
        "is left waiting. A session may be iterated and fed before it is entered, and is closed in the same way.",
    ),
    Clause(
        "E5",
        "calls keep their agent",
        "A tool call runs with the agent, tools and settings of when it arrived. `async_tool_calls=False` means "
        "one at a time, in order, never inside the reader; a call that waits for a person does not occupy the "
        "place.",
    ),
    Clause(
        "E6",
        "agent changes",
        "Handoff and `update_agent` are one operation. A change is committed, and the event and hooks follow, "
        "when the model has confirmed the settings; a refusal or failure leaves the old agent.",
    ),
    Clause(
        "E7",
        "output guardrails",
        "They look at thresholds and once at the end of every reply. A trip marks the reply first, emits one "
        "event, cancels, and sends at most one note, none if a newer reply began. One that raises is skipped, or "
        "counts as a trip by setting. Of a refused reply history keeps what was heard; the note is neither stored "
        "nor restored.",
    ),
    Clause(
        "E8",
        "interruptions",
        "`audio_interrupted` is the signal to stop. Truncation comes from the tracker, else from a clock for each "
        "item, never beyond what was received on this connection; an item without audio is deleted instead. What "
        "was cut is told to the server even if the item is history by then.",
    ),
    Clause(
        "E9",
        "replies",
        "A reply is not asked for while one is known to be active or a call that belongs into it is running; "
        "several that ask get one. One that was refused, failed (once) or lost is asked for again. Responses "
        "outside the conversation are not held.",
    ),
    Clause(
        "E10",
        "outputs",
        "A tool output that could not be sent is sent again under the same item id, without running the tool "
        "again, across reconnection and takeover too.",
    ),
    Clause(
        "E11",
        "tool guardrails",
        "Tool input guardrails run, optionally, before approval and always after it; a rejection goes back as "
        "tool output and as an event.",
    ),
    Clause(
        "E12",
        "slow readers",
        "Queues are bounded: audio is dropped first, counted and reported, a newer history replaces a waiting "
        "one, and a reader past the bound for other events ends with `SlowConsumerError` while the session and "
        "other readers go on. Audio that no reader has taken was not heard.",
    ),
    Clause(
        "E13",
        "lost connections",
        "A lost connection is an event, not an end, when reconnecting is on. A connection that owns its "
        "conversation gets the history, the open calls and the speech that was not understood; an attached one "
        "only what its server lacks. The lost reply is asked for again, nothing runs twice, what was cut is "
        "reported.",
    ),
    Clause(
        "E14",
        "memory",
        "The conversation is written to a session as it happens: each item when it is settled, in the server's "
        "order, a call together with its output, replies as they were heard. A text agent can continue it, and "
        "after `kill -9` another process can take the call over; the first is refused.",
    ),
    Clause(
        "E15",
        "context",
        "Tools, guardrails and hooks run in a copy of the context captured at entry, whoever approved or "
        "delivered the call; entering in one task and closing in another works.",
    ),
)

CLAUSES: dict[str, Clause] = {clause.id: clause for clause in (*_A, *_B, *_C, *_D, *_E)}
"""Every clause by its id, in the order of the contract."""


def clause(clause_id: str) -> Clause:
    """The clause of that id; raises LookupError with the ids there are."""
    if clause_id not in CLAUSES:
        raise LookupError(f"there is no clause {clause_id!r}; the contract has {', '.join(CLAUSES)}")
    return CLAUSES[clause_id]


def sort_key(clause_id: str) -> tuple[str, int]:
    """Order of the contract: A2 before A10 before B1."""
    return clause_id[:1], int(clause_id[1:]) if clause_id[1:].isdigit() else 0
