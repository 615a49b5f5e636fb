"""Parts C, D and E of the contract: what a run persists, who owns a conversation, what a realtime session is."""

from __future__ import annotations

from standfast._kits.contract.clause import Clause

PART_C: tuple[Clause, ...] = (
    Clause(
        "C1",
        "two lists",
        "Preparing input yields two lists: what the model sees, and what this turn adds to history. What a turn "
        "adds is the new input as the caller gave it, always and whole, or as the caller's `stored_input_filter` "
        "made it, once, before anything else saw it; what a `session_input_callback` returns is the model's view "
        "only. Stored history is never appended again, however the callback copies, reorders, filters, repeats or "
        "rebuilds items.",
    ),
    Clause.group(
        "C2",
        "callbacks",
        "A callback or filter gets copies and changes the model's view only.",
        "Both lists are normalised first and sanitised for the destination last.",
        "Between the two, items are de-duplicated by call id and type as long as the call is unanswered; an id used "
        "again after its output is another call.",
        "A call of which provider id and whole content equal one of history, with its equal output, is the same item: "
        "sent once.",
        "An output belongs to the nearest unanswered call of its id before it.",
        "Other items are de-duplicated by provider id and type, else by approval request id: the latest value wins; "
        "calls and reasoning keep the earliest place.",
        "Messages are never merged: two equal messages are two items, stored and sent.",
    ),
    Clause.group(
        "C3",
        "whole turns",
        "Each completed turn is stored when it completes, as one append: reasoning, tool calls with their outputs in "
        "call order, handoff items too.",
        "A stored turn survives any later error, interruption or crash.",
        "Where no saved run covers the turn, the next request leaves after the append has returned.",
        "A run's input is stored with its first completed turn, in the same append, or alone if a guardrail trips or "
        "the run pauses.",
        "A request that failed, or a kill before the first turn is stored, leaves nothing, so that a plain retry does "
        "not double the user's message.",
    ),
    Clause(
        "C4",
        "unfiltered history",
        "The session, `new_items` and a saved state keep the unfiltered sequence, whatever a handoff or input "
        "filter hides from the next request; the model-facing sequence is kept beside it and both survive "
        "serialisation and resume.",
    ),
    Clause(
        "C5",
        "nothing twice",
        "Nothing is stored twice over streaming, retry, interruption and resume, in any combination. Ordinals and "
        "marks count items in stored form (converted, filtered, sanitised). A provider's approval responses are "
        "items and are stored on resume; our placeholders never are.",
    ),
    Clause.group(
        "C6",
        "guardrails",
        "An input guardrail trip leaves exactly the accepted user input of this run.",
        "No call begins and no turn is appended before every parallel input guardrail has passed, and no model call "
        "follows a trip.",
        "An output trip keeps earlier turns and drops the rejected message; if the final output was a tool's result, "
        "the call is stored with a fixed withheld text.",
        "A guardrail that raises has given no verdict: an input guardrail leaves nothing of the turn stored; after an "
        "output guardrail the turn is stored, then the error raised.",
        "Sequential and parallel guardrails, streaming and not, leave the same history.",
    ),
    Clause.group(
        "C7",
        "guarded pop",
        "The runtime calls `pop_item` in one place: the adapter's rollback on a plain session, after an unknown or "
        "partial batch.",
        "The rollback compares the complete serialised suffix, then pops; on a failed or unexpected pop everything "
        "popped, the unexpected item included, is put back in order.",
        "It re-reads until the suffix is gone, within a bound, before the next attempt; if it stays, the run ends "
        "saying so.",
        "Similar older items are never touched, and clean-up errors never hide the first error.",
    ),
    Clause.group(
        "C8",
        "valid history",
        "What a run appends is always provider-valid: a turn is appended once every call has an output (result, "
        'error, rejection, "did not run", "outcome unknown").',
        "Until then the turn is the run's open obligation, kept in the run record, never in the item list.",
        "If a run fails or is cancelled after a tool of the turn ran, calls that had not begun are said not to have "
        "run, calls that had begun and were cut are said to be of unknown outcome, and the turn is appended.",
        "Abandoning a paused run rejects what is open and stores the turn whole.",
        "Requests are valid too: what a limit, callback, pop or another program cut is left out of the request and "
        "reported, not deleted.",
    ),
    Clause.group(
        "C9",
        "compaction",
        "Compaction replaces history under B3 and reads the whole history whatever the default limit.",
        "On a plain session prior state is captured first and restored exactly once if clear or replacement fails (a "
        "kill is not survived; said so).",
        "It waits while local tool outputs still belong to the response chain, and never compacts open calls and "
        "approvals away.",
        "Its failure never fails a run whose turn is stored.",
        "Its output is a `CompactionItem` in `new_items` and `RunState`, sanitised like any item.",
    ),
    Clause(
        "C10",
        "no live objects",
        "Live objects are never stored. A session receives the run context only if all four history methods (for "
        "compaction: `run_compaction`) take a keyword `wrapper`; our wrappers pass it on by the same rule.",
    ),
    Clause(
        "C11",
        "one behaviour",
        "Streaming and non-streaming runs of the same script leave byte-identical history, usage, results and "
        "interruptions. Tokens of a call that a tripwire cut count only if its reply had arrived.",
    ),
    Clause.group(
        "C12",
        "after a kill",
        "What survives `kill -9` is stated and tested for each combination; without a session: nothing.",
        "On a plain session acknowledged turns survive; the torn turn vanishes though its tools may have run; there "
        "is no consume-once.",
        "On a session with B1 and the caller's `run_id`, running again under the same id adopts its own items and "
        "goes on after the last whole turn; only tools of the torn turn can run again.",
        "With a run store a run is resumed at the last effect; a begun call is settled, never silently repeated; a "
        "saved state is consumed once.",
        "`RunConfig.run_store` defaults to the session's store on sessions of ours; there another one is refused for a "
        "new run.",
        "Where a dead worker cannot be seen it is known by its lease; by default a run waits longer than a lease "
        "lives.",
        "Runs that no session owns have a lease of their own.",
    ),
    Clause.group(
        "C13",
        "two runs",
        "`RunConfig(concurrency=...)`: `wait` (default: a lease from reading history to the last append, given up at "
        "a pause, `SessionBusyError` after the deadline), `reject`, `allow` (each turn still whole).",
        "A nested run on its parent's session uses the parent's lease; an agent tool called by hand is a nested run.",
        "On a plain session the lease is an in-process lock per conversation, whatever object it is reached through, "
        "and says so.",
        "A run that may have lost its lease (by a clock that counts sleep) sends no request and saves no beginning; a "
        "call whose beginning was saved before may have run and is said to be unknown.",
        "A run that a tool starts in its own task or thread on its run's session would wait for itself and is refused "
        "at once; one in a task of its own waits its turn.",
    ),
    Clause.group(
        "C14",
        "gives back",
        "The runner gives back what it borrowed (lease, connections) at the end of every run and leaves a handed-in "
        "session open, unless `RunConfig(close_session=True)`.",
        "However often a run is cancelled, and whoever cancels it, what its tools have done is stored and the lease "
        "given back, within a stated grace.",
        "The caller gets control back at the second cancellation (A13), because what closes a run (its last state, "
        "its turn, its lease) is one request to the store that no longer needs the loop.",
        "What could not be closed is told at the session's next run.",
    ),
    Clause.group(
        "C15",
        "unfinished runs",
        "An unfinished run is never silently stepped over: one that the run's own run store knows on this "
        "conversation, that has not ended, and of which a call has begun or waits or a turn is stored. (One that has "
        "done nothing is left alone: it can be run again; a message among those is heard, F2.)",
        "Unfinished runs are looked for once, by the outermost run, under its lease, before history is read; a run "
        "itself and the runs it is nested in never count; a record that cannot be read is refused by name.",
        "`RunConfig(unfinished=...)`: `settle` (default), `resume`, `refuse` (names run, calls and what to do; "
        "nothing runs), `ignore`.",
        "Settling is for new messages only: a run that is resumed (`resume`, `recover`, a delivery of a run that "
        "exists) settles no other.",
        "A resumed run lets a gone run go first where this worker has its agent and tools, and a run is let go first "
        "after at most 5 lost workers; else the gone run is left open and listed, and requests show its open turn as "
        "a paused run's.",
        "Which run goes first is read from the store (gone before decided, older before younger, one that has done "
        "nothing after the gone), and a worker holds no lease while it lets another run go first: no two wait for "
        "each other.",
        "`resume` does the same for a new message, which also lets decided runs go first; it is the default of jobs.",
        "What a run paused with reaches the history before later input, wherever its worker died.",
        "Gone means that a run ran under a lower lease number than ours, so nothing of it can begin or be stored any "
        "more. It is settled by the engine alone: none of its agents, tools, policies, guardrails or hooks is needed "
        "or runs.",
        "Of a gone run a begun call is said to be unknown (where its tool says `ask`, it waits; the record keeps that "
        "setting), one that had not begun is said not to have run, and what no guardrail has passed is treated as C6 "
        "says.",
        "If a call of a gone run then waits, the run is paused; else its turn is stored whole and it ends, and says "
        "by which run. Resuming it, or running again under its id, says so.",
        "A paused run is left as it is. Requests show its open turn (reasoning, calls, outputs so far, for each call "
        "that waits a fixed text: it waits for a person and has not run) behind the history and before the new input, "
        "oldest first, whatever the limit; a session callback gets it with the history.",
        "What is shown of a paused run stands in requests only: never in history, `new_items`, `to_input_list`, a "
        "state or a compaction (a run that showed one compacts by `input`).",
        "A paused run that is decided later takes the lease and D7 holds: its turn is appended behind what was said "
        "meanwhile, with the real output, once. A new question equal in agent, tool and arguments to one that waits "
        "names it.",
        "Where nothing is provable (`allow`, no lease, a holder without one) running runs are left alone and "
        "reported, paused ones shown. Without a run store nothing is known, and the page says so.",
        "On `conversation_id` a gone run is settled by D5 and what it owes goes first in the new run's first request; "
        "a waiting call is refused (any text sent would be its output), and so is a gone run that is neither settled "
        "nor let go first. Chains and replay: not applicable.",
        "`result.unfinished` and the log say what was found and done.",
        "Deleting or cancelling never hides what a run under way did: `delete_run` refuses one that has not ended, "
        "and `clear_session` keeps the record of one that still holds its lease and of no other.",
    ),
    Clause.group(
        "C16",
        "one run, one owner",
        "Two starts of one `run_id` have one owner, wherever there is a run store, with every owner of the "
        "conversation; the other is told before anything of it runs, or, where it waits for the session, gets the "
        "finished run's result.",
        "An approval is for one call of one agent's tool with these arguments; if these are others now, or cannot be "
        "told apart, it is refused before anything runs.",
        "An agent is known by its name and where it stands; a tool by its name, namespace and kind, with the agent or "
        "server behind it, not by its code or description: a release must not lose the approvals that wait.",
        "A sticky approval is for one agent's tool, and for calls of which input guardrails see the values.",
        'Arguments that a policy function cannot read count as "ask a person".',
        "So do arguments of which the tool would get other values than the model wrote (converted, left out, filled "
        "in), wherever a function decides: a policy or input guardrails, in text and voice. A tool may refuse such "
        "calls instead.",
        "The values are read ahead without running the application's models, validators or default factories; where "
        "a policy function would decide about values that need these, a person is asked. Guardrails alone judge the "
        "text of such values.",
        "A person is shown the model's text and, where they differ, the values; the tool gets exactly these, also "
        "after a resume in another process or release, or the person is asked again.",
    ),
)

PART_D: tuple[Clause, ...] = (
    Clause(
        "D1",
        "one owner",
        "Owners: a session; `conversation_id`; the response chain (`previous_response_id` given, automatic, or "
        "both); none (the caller replays). Two of the first three are refused before anything is read or sent, "
        "also from a resumed state or `as_tool`, with an error that says which two and what to do. Resuming under "
        "another owner, another session id, or without the session is refused.",
    ),
    Clause(
        "D2",
        "only what is new",
        "A server-owned conversation receives only what the server has not acknowledged: first turn, follow-up, "
        "tool outputs, retry, resume after serialisation, streaming and not. A call the server made is never sent "
        "back; one output per call id is sent, once; equal output texts of different calls are all sent.",
    ),
    Clause(
        "D3",
        "in flight",
        "The filter sees the prepared payload (whole if client-owned, delta if server-owned) and its list is "
        "saved as in flight before the request leaves; nothing joins it afterwards. On failure it is un-marked. "
        "On success exactly its ledger items are acknowledged: one left out is still owed and offered again; a "
        "rewritten one counts as its source; an invented one is sent once and enters no history.",
    ),
    Clause(
        "D4",
        "response chain",
        "`previous_response_id` follows the latest response that has an id. On a response chain the mark belongs "
        "to the id: a reply without one moves neither, so the next request carries what was sent and that reply "
        "again (with a provider that gives no ids at all: full replay). Under `conversation_id` it moves.",
    ),
    Clause(
        "D5",
        "sent again",
        "A stateful request is sent again only (a) with evidence: it never left, it was refused (4xx, 429, "
        "`conversation_locked`), or the provider's advice is `safe`; (b) after listing the server's items settled "
        "it; (c) with the policy's explicit `approve_unsafe_replay`. 5xx, timeouts and cut streams are no "
        "evidence. Otherwise the error says that the outcome is unknown and how to go on.",
    ),
    Clause(
        "D6",
        "refused early",
        "A filter must return `ModelInputData` with a list; anything else is refused. Handoff input filters with "
        "a server-owned conversation are refused, at the start for `RunConfig` and every handoff reachable from "
        "the starting agent; `nest_handoff_history` there is switched off with a warning. No model call is paid "
        "for before a refusal that could be known.",
    ),
    Clause(
        "D7",
        "resume",
        "`RunState` carries the owner, its ids and marks: resuming replays nothing acknowledged, loses no unsent "
        "tool output, and charges no turn without a model call. A finished run cannot be resumed: the error says "
        "how to start a new turn; only `add_input` adds input to a paused one. With a session, resume reads it "
        "again and the model sees what is stored now, then the open turn.",
    ),
    Clause(
        "D8",
        "compaction keeps the owner",
        "Compaction keeps the owner: `previous_response_id` mode needs a stored chain and errors without one, "
        "`input` mode rebuilds from client-held items, `auto` uses `input` without an id, with `store=False`, or "
        "when the server does not know the response. The next request holds the compacted items or the chain, "
        "never both.",
    ),
    Clause(
        "D9",
        "old states",
        "Every version of a saved state that a release of standfast wrote is read by all later ones; newer, "
        "unknown and foreign versions are refused by name.",
    ),
    Clause(
        "D10",
        "guardrails first",
        "With `conversation_id`, input guardrails finish before the request is sent: what a server has taken "
        "cannot be taken back.",
    ),
    Clause(
        "D11",
        "debts",
        "A run that ends owing the server tool outputs (max turns, abandoned) says so and hands them over.",
    ),
    Clause(
        "D12",
        "replay-ready",
        "`to_input_list()` is replay-ready: for an unfinished run both modes leave out unanswered calls and the "
        "reasoning before them.",
    ),
)

PART_E: tuple[Clause, ...] = (
    Clause(
        "E1",
        "entering",
        "Constructing a session does nothing outside the process. Entering acquires; if entering fails at any "
        "step, all that was acquired is released (tracing scope too), the first error is raised and release "
        "errors are attached to it. `close` during entry ends the entry: nothing acquired stays, no lease is "
        "taken, and the caller of `enter` gets an error that says so.",
    ),
    Clause.group(
        "E2",
        "what it owns",
        "The session owns its listener, connection, reader, event iterators, guardrail tasks, tool tasks, deferred "
        "sends, tracing scope, pending approvals and outputs; after `close` none is alive or registered.",
        "Code that cannot be stopped (a tool's thread) is awaited for `close_timeout_s`, then named in an error; "
        "nothing it does later reaches model, history or store.",
        "Each pending approval and unsent output is reported dropped, and `pending_approvals` is empty, or a session "
        "that keeps runs has them in the call's record.",
        "`RealtimeRunner.resume(run_id, session=...)` continues a call that a record kept, or settles it without a "
        "connection: a tool call decided after hanging up runs and is stored with its output.",
    ),
    Clause(
        "E3",
        "closing",
        "`close` may be called again, from another task, from a tool or listener, or while others iterate. "
        "It cancels an entry under way and awaits it. "
        "`model.close()` is never concurrent nor repeated after success; if it fails, iterators still end, every "
        "caller gets the error, and `close` may be called again. Iterators deliver what is queued first. Called "
        "from a task the session owns, or by code that the entry runs, `close` begins the closing and returns at "
        "once.",
    ),
    Clause.group(
        "E4",
        "background tasks",
        "A cancelled background task is awaited; any exception in one reaches the event stream, or `close` where no "
        "reader and no caller got it.",
        "An exception of a tool, guardrail or hook that is not an `Exception` is an `error` event and ends the call.",
        "No consumer or caller is left waiting for a loop that has ended.",
        "A session may be iterated and fed through `on_event` before it is entered; what that starts is owned and "
        "closed in the same way.",
    ),
    Clause(
        "E5",
        "calls",
        "A tool call runs with the agent, tools and settings resolved when the call arrived, whatever the current "
        "agent is when it finishes. `async_tool_calls=False` means one call at a time, in order, never inside the "
        "reader; a call that waits for a person does not occupy the place.",
    ),
    Clause(
        "E6",
        "one change of agent",
        "Handoff and `update_agent` are one operation: same settings, same events, same tracing metadata, tools "
        "and handoffs resolved once; changes apply one at a time, in the order asked; a change is committed, and "
        "hooks and the `handoff` event follow, when the model has confirmed the settings (a transport that cannot "
        "confirm: when they were sent). A refusal or failure leaves the old agent; unconfirmed settings are sent "
        "again on the next connection.",
    ),
    Clause.group(
        "E7",
        "output guardrails",
        "Output guardrails look at the accumulated transcript at debounce thresholds and once at the end of the "
        "response.",
        "A trip marks the response interrupted before any I/O, emits one `guardrail_tripped` per response and never "
        "raises, cancels the response, and emits `audio_interrupted` for delivered audio.",
        "A trip sends at most one follow-up that names the guardrail, none if a newer response began.",
        "A trip does so also through a transport that gives no response id at the start of a turn.",
        "A guardrail that raises is logged and skipped (default; fail-closed by setting), the others still count; "
        "what escapes the task becomes `RealtimeError`.",
        "Of a refused reply history keeps what was heard and nothing of the rest; the follow-up is an instruction, "
        "not the user's words: it is neither stored nor restored.",
    ),
    Clause(
        "E8",
        "interruption",
        "`audio_interrupted` is the signal to stop playback; truncation is computed from the playback tracker, "
        "else from a clock estimate per item, never beyond what was received on this connection; an item without "
        "audio is not truncated but, if none comes, deleted. What was cut is told to the server even if the item "
        "is history by then. Playback is sequential: a report about a later item means the earlier ones were "
        "heard.",
    ),
    Clause(
        "E9",
        "asking for a response",
        "We never ask for a response while one is known to be active or a call that belongs into it is running; "
        "several that ask get one. A reply that was refused, failed (once) or lost with its connection is asked "
        "for again. Responses outside the conversation are not held.",
    ),
    Clause(
        "E10",
        "outputs sent once",
        "A tool output that could not be sent is sent again, under the same item id, without running the tool "
        "again; across reconnection and takeover as well.",
    ),
    Clause(
        "E11",
        "guardrails and approval",
        "Tool input guardrails run (optionally) before approval and always after it; a rejection goes back as "
        "tool output and as an event.",
    ),
    Clause(
        "E12",
        "slow consumers",
        "A slow consumer cannot exhaust memory: queues are bounded; audio is dropped or coalesced first, counted "
        "and reported; control events have their own bound, and an iterator past it ends with `SlowConsumerError` "
        "while the session and other iterators go on. Audio that no reader has taken was not heard. A waiting "
        "history snapshot is replaced by a newer one.",
    ),
    Clause.group(
        "E13",
        "lost connections",
        "A lost connection (the provider's time limit, close code 1001, included) is an event, not an end, when "
        "reconnecting is on (default: where a session is given).",
        "A connection that owns its conversation gets the history, the open calls and the speech that was not "
        "understood yet, as far as it is kept.",
        "A connection attached by `call_id` gets only what its server lacks, and a gap is reported.",
        "The reply that was lost is asked for again.",
        "Frames of an old connection are ignored, nothing runs twice, and what was cut is reported.",
    ),
    Clause.group(
        "E14",
        "history",
        "The conversation is written to a session as it happens: each item when it is settled, in the server's order, "
        "a call together with its output.",
        "Item text is what was heard (an estimate in proportion to the audio, at a word's end, never more than was "
        "generated); the generated text and the times are kept in the call's record under the same ordinal, also "
        "after the call, until pruned.",
        "Speech without a transcript is stored as a fixed text; what nobody heard, and what nobody said (idle "
        "timeouts), is not stored.",
        "A text agent can continue the conversation.",
        "After `kill -9` another process can continue it: acknowledged messages, decisions, results and settled items "
        "are there; what was being said is cut where it was last known to be heard.",
        "A call holds its session's lease, with a ttl of seconds.",
        "For C15 a call is a run: if its holder is gone, what was in doubt is said to be unknown and settled items "
        "are stored, but the call stays resumable until it is hung up or expires; a text run meanwhile sees it as C15 "
        "says.",
    ),
    Clause(
        "E15",
        "context and spans",
        "Tools, guardrails and hooks run in a copy of the context captured at entry, whoever approved or "
        "delivered the call. Tokens and spans are reset in the task that set them: entering in one task and "
        "closing in another works.",
    ),
)
