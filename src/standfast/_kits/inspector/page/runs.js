// One run by itself: what it did and when, what it waits for, what it cost. Uses the helpers of inspector.js.
"use strict";

const ENDED = ["done", "failed", "cancelled"];
const RUN_POLL_MS = 1000; // how often a run that has not ended is asked for again
const SYMBOLS = { input: "›", turn: "↻", call: "⚙", failed: "✗", waits: "?", approved: "✓", rejected: "✗", resumed: "⇄", end: "■", handover: "⇒", heard: "♪" };

function timelineRow(one, before) {
  const gap = one.at && before ? seconds((new Date(one.at) - new Date(before)) / 1000) : "";
  const row = make("li", { class: `is-${one.kind}` },
    make("span", { class: "symbol", text: SYMBOLS[one.kind] ?? "·", "aria-hidden": "true" }),
    make("span", { class: "when" }, one.at ? time(one.at) : null, gap ? make("span", { class: "gap", text: ` +${gap}` }) : null),
    make("strong", { text: one.title }));
  if (one.tokens) row.append(make("span", { class: "about", text: ` · ${number(one.tokens)} tokens${one.dollars ? ` · $${one.dollars}` : ""}` }));
  if (one.kind === "heard") row.append(make("p", { class: "heard", text: one.text }, unheard(one.unheard)));
  else if (one.text.length <= 90 && !one.text.includes("\n")) row.append(one.text ? make("p", { class: "heard", text: one.text }) : "");
  else row.append(make("details", {}, make("summary", { text: one.text.length > 90 ? `${one.text.slice(0, 90)}…` : one.text }), make("pre", { text: one.text })));
  return row;
}

function unheard(text) {
  // The rest of a reply that was interrupted. Said in words, too: a line through a text is not read aloud.
  return text ? make("span", { class: "unheard" }, make("span", { class: "label", text: " Not heard: " }), make("s", { text })) : null;
}

function seconds(count) {
  if (!(count >= 0.05)) return "";
  if (count < 10) return `${count.toFixed(1)} s`;
  for (const [size, name] of [[86400, "d"], [3600, "h"], [60, "min"]]) if (count >= size) return `${Math.floor(count / size)} ${name}`;
  return `${Math.floor(count)} s`;
}

function drawRun(run) {
  document.title = `${run.name} · standfast inspector`;
  const total = run.usage.total;
  const hasEnded = ENDED.includes(run.status);
  const took = run.created && run.updated ? seconds((new Date(run.updated) - new Date(run.created)) / 1000) || "less than 0.1 s" : "";
  const facts = make("p", { id: "run-facts" }, identifier(run.id, run.name), ` · ${run.kind} of ${run.agent || "an agent"} · `,
    make("b", { text: run.status, class: `status ${run.status}` }), took ? ` · ${hasEnded ? "took" : "for"} ${took}` : "", run.doing && !run.doing.startsWith("has ended") ? ` · ${run.doing}` : "",
    total ? ` · ${number(total)} tokens in ${number(run.usage.requests)} ${run.usage.requests === 1 ? "request" : "requests"}` : "",
    run.dollars ? ` · $${run.dollars}` : "");
  const parts = [make("h2", { text: `Run ${run.name}` }), facts];
  if (run.session !== null) parts.push(make("p", {}, make("a", { href: link({ session: run.session }), text: `Conversation ${run.session_name}` })));
  if (run.worker) parts.push(make("p", { class: `worker ${run.worker.state}`, text: `${run.worker.text}.` }));
  parts.push(nextStep(run), heldRun(run));
  for (const call of run.calls) if (call.state === "waiting") parts.push(waitingCall(run, call));
  const rows = [];
  let before = run.created;
  for (const one of run.timeline) { rows.push(timelineRow(one, before)); before = one.at ?? before; }
  parts.push(make("ol", { id: "timeline", "aria-label": "Timeline" }, ...rows));
  if (run.has_more) parts.push(make("p", { class: "about", text: "Only the latest part of the run's records is shown." }));
  $("run").replaceChildren(...parts.filter(Boolean));
}

function nextStep(run) {
  // Who continues the run, and how: the advice that `standfast runs show` gives.
  if (!run.next) return null;
  return make("p", { class: "next" }, `${run.next.text} `, make("code", { text: run.next.command }),
    run.next.give_up ? " Or give it up: " : null, run.next.give_up ? make("code", { text: run.next.give_up }) : null);
}

function heldRun(run) {
  // A run of a store that was restored from a backup: it may have acted after the backup, so a person looks first.
  if (!run.is_held) return null;
  const release = tried(async () => {
    const now = await ask("/api/release", {}, { run: run.id });
    if (state.view === "run") await go(); else await about();
    $("live").textContent = `The run may continue. ${now.next ? `${now.next.text} ${now.next.command}` : ""}`;
    await list();
  });
  return make("div", { class: "waits" }, make("h3", { text: "This run waits for a person" }),
    make("p", { text: "Its store was restored from a backup. What the run did after the backup is not known here: look whether its calls took effect, then let it continue." }),
    state.writes ? make("p", {}, make("button", { type: "button", class: "approve", text: "Let it continue", onclick: release })) : make("p", { class: "about", text: "Start the inspector with --write to decide here." }));
}

async function showRun(runId) {
  // Returns when the run is drawn; while it goes on, it is asked for again.
  const mine = ++state.place;
  const look = async (drawn) => {
    const run = await ask("/api/run", { run: runId });
    if (mine !== state.place) return null;
    const typing = $("run").contains(document.activeElement) && document.activeElement.tagName === "INPUT";
    const isNews = run.revision !== drawn?.revision || run.status !== drawn?.status || run.worker?.state !== drawn?.worker?.state;
    if (isNews && typing && drawn) return drawn;
    if (isNews) drawRun(run);
    if (isNews && drawn) list();
    return run;
  };
  const follow = tried(async (drawn) => {
    while (drawn && !ENDED.includes(drawn.status)) {
      await new Promise((done) => setTimeout(done, RUN_POLL_MS));
      if (mine !== state.place) return;
      drawn = await look(drawn);
    }
  });
  const drawn = await look(null);
  follow(drawn);
}

// --- the store as a whole --------------------------------------------------------------------------------------------

function figure(count, words, href) {
  const inside = [make("b", { text: count }), make("span", { text: words })];
  return make("li", {}, href ? make("a", { href }, ...inside) : make("div", {}, ...inside));
}

function runRows(title, runs, note) {
  if (!runs.length) return null;
  return make("section", { "aria-label": title }, make("h3", { text: title }), note ? make("p", { class: "about", text: note }) : null,
    make("ul", { class: "runs" }, ...runs.map((one) => make("li", {},
      make("a", { href: link({ run: one.id }), text: one.name }), ` · ${one.agent || "an agent"}`,
      one.session !== null ? make("span", {}, " in ", make("a", { href: link({ session: one.session }), text: one.session_name })) : null,
      one.updated ? make("span", { class: "about" }, " · ", time(one.updated)) : null))));
}

function budgetRows(budgets) {
  if (!budgets.length) return "";
  const rows = budgets.map((one) => make("li", {}, make("b", { text: one.name }), one.period === "always" ? "" : ` · ${one.period}`,
    ` · ${one.used} used`, one.limit === null ? "" : ` of ${one.limit}, ${one.left} left`,
    one.reserved ? ` · ${one.reserved} reserved` : "", one.unknown ? ` · ${one.unknown} not known for certain` : "", " ",
    state.writes ? make("button", { type: "button", class: "small", text: "Change", onclick: tried(() => changeBudget(one)) }) : null));
  return make("section", { "aria-label": "Budgets" }, make("h3", { text: "Budgets" }), make("ul", { class: "runs" }, ...rows));
}

async function changeBudget(one) {
  const amount = prompt(`New limit of ${one.name} (empty: programs give it):`, one.amount ?? "");
  if (amount === null) return;
  await ask("/api/budget", {}, { budget: one.id, amount });
  await showOverview();
}

async function showOverview() {
  const mine = ++state.place;
  const found = await ask("/api/overview");
  if (mine !== state.place) return;
  document.title = "standfast inspector";
  const { counts, cost } = found;
  $("overview").replaceChildren(
    make("h2", { text: "This store" }),
    make("ul", { class: "figures" },
      figure(number(counts.sessions), counts.sessions === 1 ? "session" : "sessions"),
      figure(number(counts.paused), counts.paused === 1 ? "waits for a person" : "wait for a person"),
      figure(number(counts.ready), counts.ready === 1 ? "waits for a worker" : "wait for a worker"),
      figure(number(counts.running), "under way"),
      figure(number(counts.failed), "failed"),
      cost && cost.total ? figure(number(cost.total), `tokens${cost.dollars ? `, $${cost.dollars}` : ""}`) : null),
    budgetRows(found.budgets),
    ...[runRows("Wait for a person", found.paused),
      runRows("Stuck: no worker has them", found.stuck, "Their workers are gone. A worker that calls Runner.recover continues them; standfast doctor says more."),
      runRows("Wait for a worker", found.ready, "Decided, or not begun. A worker that calls Runner.recover continues them."),
      runRows("Failed", found.failed)].filter(Boolean),
    cost === null ? make("p", { class: "about", text: "Costs are not added up here for so many sessions: standfast sessions stats does." }) : "");
}
