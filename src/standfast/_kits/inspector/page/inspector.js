// The inspector's page. Whatever is stored is put into the page as text and never as markup, and is not parsed here:
// the server lays it out, exactly and with every mark written out that could change how it reads.
"use strict";

const $ = (id) => document.getElementById(id);
// The token comes behind the `#` of the address and stays in this page. It is no cookie: a browser gives those to every
// server on this computer, whatever its port.
const TOKEN = "standfast-token";
const NO_TOKEN = "The token is missing or another one. Give yours below: it stands in the address that the inspector printed.";
const GONE = "The inspector does not answer. Start it again and open the address it prints.";

// `#session=…` or `#run=…` says what is open, so that an address can be kept and sent: without the token.
const link = (place) => `#${new URLSearchParams(Object.entries(place).filter(([, value]) => value))}`;
const placeOfAddress = () => new URLSearchParams(location.hash.slice(1));

function tokenFromAddress() {
  const place = placeOfAddress();
  if (!place.get("token")) return false;
  sessionStorage.setItem(TOKEN, place.get("token"));
  place.delete("token");
  history.replaceState(null, "", `${location.pathname}${place.size ? `#${place}` : ""}`);
  return true;
}

tokenFromAddress();
addEventListener("hashchange", () => { if (tokenFromAddress()) location.reload(); else go(); });
const headers = (more = {}) => ({ authorization: `Bearer ${sessionStorage.getItem(TOKEN) ?? ""}`, ...more });

const state = { session: null, writes: false, listAfter: null, before: null, stream: null, costs: new Map(), spoken: {}, search: 0, place: 0, fields: 0, view: null };

function make(tag, { text, ...attributes } = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") node.addEventListener("click", value);
    else if (value !== false && value !== undefined && value !== null) node.setAttribute(name, value === true ? "" : value);
  }
  if (text !== undefined) node.textContent = text;
  node.append(...children.filter(Boolean));
  return node;
}

function problem(words) {
  $("problem").hidden = !words;
  $("problem").textContent = words || "";
}

async function ask(path, parameters = {}, body = undefined) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== ""));
  const options = body === undefined ? { headers: headers() } : {
    method: "POST", headers: headers({ "content-type": "application/json", "x-standfast": "1" }), body: JSON.stringify(body),
  };
  let answer;
  try {
    answer = await fetch(`${path}?${query}`, options);
  } catch {
    throw new Error(GONE);
  }
  $("enter").hidden = answer.status !== 401;
  if (answer.status === 401) throw new Error(NO_TOKEN);
  const text = await answer.text();
  let value;
  try { value = JSON.parse(text); } catch { throw new Error(text); }
  if (!answer.ok) throw new Error(`${value.what}. ${value.remedy}`);
  return value;
}

function tried(action) {
  return async (...given) => {
    try { const done = await action(...given); problem(""); return done; } catch (error) { problem(error.message); }
  };
}

const relative = new Intl.RelativeTimeFormat(undefined, { numeric: "auto" });

function ago(iso) {
  if (!iso) return "";
  const passed = (new Date(iso) - Date.now()) / 1000;
  for (const [size, name] of [[31536000, "year"], [2592000, "month"], [86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]]) {
    if (Math.abs(passed) >= size) return relative.format(Math.trunc(passed / size), name);
  }
  return relative.format(0, "second");
}

const number = (n) => (n === null || n === undefined ? "" : n.toLocaleString());
const clock = (iso) => (iso ? new Date(iso).toLocaleString() : "");
const told = (iso, isShort) => (isShort ? ago(iso) : `${clock(iso)} (${ago(iso)})`);
const time = (iso, isShort = false) => make("time", { datetime: iso, title: iso, "data-short": isShort, text: told(iso, isShort) });

// A page stays open for hours: what it says of the past must not stay "now".
setInterval(() => {
  for (const node of document.querySelectorAll("time")) {
    const words = told(node.dateTime, node.dataset.short !== undefined);
    if (node.textContent !== words) node.textContent = words;
  }
}, 1000);
const count = (n, one, many = `${one}s`) => `${number(n)} ${n === 1 ? one : many}`;

function identifier(id, name = id) {
  // The beginning and the end of a long id; a click copies all of it.
  const short = name.length > 20 ? `${name.slice(0, 8)}…${name.slice(-6)}` : name;
  return make("button", { type: "button", class: "small id", title: `${name}: click to copy`, text: short, onclick: async () => {
    try { await navigator.clipboard.writeText(id); $("live").textContent = `Copied ${name}.`; } catch { problem(`The browser does not let this page copy. The id: ${name}`); }
  } });
}

// --- the listing -----------------------------------------------------------------------------------------------------

function line(one) {
  const waits = one.waiting.length ? make("em", { text: `waits for you: ${one.waiting.map((call) => call.tool).join(", ")}` }) : null;
  return make("li", {}, make("button", { type: "button", "data-session": one.id, onclick: () => { location.hash === link({ session: one.id }) ? go() : location.assign(link({ session: one.id })); } },
    make("b", { text: one.name }),
    make("span", { text: one.words || (one.excerpt ?? "") }),
    make("span", { text: one.items === null || one.items === undefined ? "" : `${count(one.items, "item")} · ` }, one.updated || one.at ? time(one.updated || one.at, true) : null),
    waits));
}

function marked() {
  for (const button of document.querySelectorAll("#sessions button")) {
    if (button.dataset.session === state.session) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
  }
}

const list = tried(async (further = false) => {
  const mine = ++state.search;
  const words = $("words").value.trim();
  const waiting = $("waiting").checked ? "1" : "";
  const after = further ? state.listAfter : null;
  let rows, next;
  if (words && !waiting) {
    const found = await ask("/api/search", { q: words, after });
    const prefixed = further ? { sessions: [] } : await ask("/api/sessions", { prefix: words, limit: 20 });
    const seen = new Set(prefixed.sessions.map((one) => one.id));
    const hits = found.hits.filter((hit) => !seen.has(hit.session) && seen.add(hit.session));
    rows = [...prefixed.sessions, ...hits.map((hit) => ({ id: hit.session, name: hit.name, words: hit.excerpt, at: hit.at, waiting: [] }))];
    next = found.after;
  } else {
    const found = await ask("/api/sessions", { after, waiting, prefix: words });
    rows = found.sessions;
    next = found.after;
  }
  if (mine !== state.search) return;
  if (!further) $("sessions").replaceChildren();
  $("sessions").append(...rows.map(line));
  if (!$("sessions").children.length) $("sessions").append(make("li", { text: "Nothing found." }));
  state.listAfter = next;
  $("more").hidden = !next;
  marked();
});

// --- one conversation ------------------------------------------------------------------------------------------------

function folded(view) {
  const failed = view.failed ? make("span", { class: "failed", text: `  ✗ ${view.failed}` }) : null;
  return make("details", { "data-call": view.call }, make("summary", { text: view.title }, failed), make("pre", { text: view.text }));
}

function said(view) {
  const node = make("div", { class: `said ${view.role}` }, make("strong", { text: `${view.title}  ` }));
  node.append(view.form === "json" ? make("pre", { text: view.text }) : markdown(view.text));
  return node;
}

function shown(view, place) {
  if (view.kind === "said") return said(view);
  if (view.kind !== "output") return folded(view);
  const before = view.call && [...place.querySelectorAll("details[data-call]")].filter((one) => one.dataset.call === view.call).pop();
  if (!before) return folded(view);
  before.append(make("pre", { text: `→ ${view.text}` }));
  before.querySelector("summary").append(make("span", view.failed ? { class: "failed", text: `  ✗ ${view.failed}` } : { text: "  ✓" }));
  return null;
}

function cost(writer) {
  const found = state.costs.get(writer);
  if (!found) return "";
  const retries = (turn) => (turn.retries ? `, asked ${turn.retries} ${turn.retries === 1 ? "time" : "times"} more` : "");
  const turns = found.turns.filter((turn) => turn.total || turn.retries)
    .map((turn) => `turn ${turn.turn}${turn.total ? `: ${number(turn.total)}` : ""}${retries(turn)}`).join("; ");
  const total = found.total.total ? ` · ${number(found.total.total)} tokens${found.dollars ? ` · $${found.dollars}` : ""}` : "";
  return `${total}${turns ? ` (${turns})` : ""}`;
}

function blockFor(record, before) {
  // One block for what one run wrote in a row; a message of the user's begins a new one where no run is known.
  const blocks = $("turns");
  const last = before ? blocks.firstElementChild : blocks.lastElementChild;
  const starts = record.view?.role === "user";
  if (last && (record.writer ? last.dataset.writer === record.writer : !last.dataset.writer && !(starts && !before))) return last;
  const about = make("p", { class: "about" }, record.at ? time(record.at) : null);
  if (record.writer) about.append(" · ", make("a", { href: link({ run: record.writer }), text: "run" }), " ", identifier(record.writer, record.writer_name), cost(record.writer));
  const block = make("li", { "data-writer": record.writer ?? "" }, about);
  if (before) blocks.prepend(block); else blocks.append(block);
  return block;
}

function put(block, record) {
  const holder = make("div", { "data-cursor": record.cursor });
  if (record.replaces) holder.append(replaced(record.replaces));
  if (record.view === null) holder.append(make("div", { class: "waits", text: `A record that cannot be read: ${record.fault}` }));
  else {
    const node = shown(record.view, block);
    if (node) holder.append(node);
    if (node && record.view.role === "assistant" && record.writer) {
      Object.assign(node.dataset, { run: record.writer, number: record.number });
      addHeard(node);
    }
  }
  if (record.cut) holder.append(make("button", { type: "button", class: "small", text: "Show all of it", onclick: tried(async () => {
    const whole = await ask("/api/record", { session: state.session, cursor: record.cursor });
    const node = shown(whole.view, block);
    if (node) holder.replaceChildren(node);
  }) }));
  if (state.writes && record.view?.role === "assistant") holder.append(make("button", { type: "button", class: "small", text: "Fork from here", onclick: () => fork(record.cursor) }));
  return holder;
}

function addHeard(node) {
  // A reply of a voice call: how much of it the caller heard, and the rest. A live page learns it after the reply.
  const reply = state.spoken[node.dataset.run]?.[node.dataset.number];
  if (reply && !node.querySelector(".heard")) node.append(make("p", { class: "heard about" }, `♪ ${reply.heard}.`, unheard(reply.unheard)));
}

function replaced(generation) {
  const inside = make("pre", { text: "" });
  const details = make("details", {}, make("summary", { text: "Compacted: what follows stands for an earlier part" }), inside);
  details.addEventListener("toggle", tried(async () => {
    if (!details.open || inside.textContent) return;
    const found = await ask("/api/generation", { session: state.session, generation });
    inside.textContent = found.text + (found.count > found.items.length ? `\n… ${number(found.count)} items in all` : "");
  }));
  if (state.writes) details.append(make("button", { type: "button", class: "small", text: "Undo this compaction", onclick: tried(async () => {
    if (!confirm("Put the earlier part back? What stands for it now is kept and can be put back as well.")) return;
    await ask("/api/undo", {}, { session: state.session, generation });
    await go();
  }) }));
  return details;
}

const fork = tried(async (cursor) => {
  const name = prompt("Name of the new session:", `${state.session}-fork`);
  if (!name) return;
  await ask("/api/fork", {}, { session: state.session, cursor, new: name });
  await list();
  location.assign(link({ session: name }));
});

function append(records) {
  for (const record of records) {
    const block = blockFor(record, false);
    block.append(put(block, record));
  }
}

function prepend(records) {
  // Built on their own, in order, so that outputs find their calls; then put before what is there.
  const later = [...$("turns").children];
  $("turns").replaceChildren();
  append(records);
  const last = $("turns").lastElementChild;
  const first = later[0];
  if (last && first && last.dataset.writer && last.dataset.writer === first.dataset.writer) {
    first.querySelector(".about")?.remove();
    last.append(...first.childNodes);
    later.shift();
  }
  $("turns").append(...later);
}

function waitingCall(run, call) {
  const field = `reason-${++state.fields}`;
  const reason = make("input", { type: "text", id: field, autocomplete: "off" });
  const decide = (approve) => tried(async () => {
    const { arguments: text, prepared_arguments: values } = call;
    const now = await ask("/api/decide", {}, { run: run.id, call: call.call, approve, arguments: text, prepared_arguments: values, reason: approve ? "" : reason.value });
    const told = approve ? `Approved: ${call.tool}.` : `Rejected: ${call.tool}.`;
    if (state.view === "run") await go(); else await about();
    $("live").textContent = told + (now.next ? ` ${now.next.text} ${now.next.command}` : "");
    await list();
  });
  const isLong = call.text === null;
  const tooLong = `The arguments are too long to be shown here (${number(call.length)} characters), so this call cannot be approved here. Read them with standfast runs show --json, and decide with standfast runs approve.`;
  return make("div", { class: "waits" },
    make("h3", { text: call.reason === "unknown" ? `${call.tool} may have run before a crash` : `${call.tool} waits for a decision` }),
    isLong ? make("p", { text: tooLong }) : make("pre", { text: call.text }),
    call.values ? make("p", { text: "The tool will get:" }) : null,
    call.values ? make("pre", { class: "values", text: call.values }) : null,
    state.writes && !isLong ? make("p", {}, make("button", { type: "button", class: "approve", text: "Approve", onclick: decide(true) })) : null,
    state.writes ? make("p", { class: "rejecting" }, make("label", { for: field, text: "Reason for rejecting, which the model reads" }), reason,
      make("button", { type: "button", class: "reject", text: "Reject", onclick: decide(false) }))
      : make("p", { class: "about", text: "Start the inspector with --write to decide here." }));
}

function openRun(run) {
  const section = make("div", {}, make("h3", { text: `Open: ${run.agent || "an agent"}, ${run.status}` }),
    make("p", { class: "about" }, make("a", { href: link({ run: run.id }), text: "run" }), " ", identifier(run.id, run.name), ` ${run.doing}`),
    run.worker ? make("p", { class: `worker ${run.worker.state}`, text: `${run.worker.text}.` }) : null, nextStep(run), heldRun(run));
  for (const view of run.open_views) {
    const node = shown(view, section);
    if (node) section.append(node);
  }
  for (const call of run.calls) {
    if (call.state === "waiting") section.append(waitingCall(run, call));
    else if (call.decision) section.append(make("p", { class: "about", text: `${call.tool}: ${call.decision.approved ? "approved" : "rejected"} by ${call.decision.by ?? "a program"} ${ago(call.decision.at)}` }));
    else section.append(make("p", { class: "about", text: `${call.tool}: ${call.state}` }));
  }
  return section;
}

const by = (what, before = "") => what.by ? `${before} by ${what.by}` : "";

async function about() {
  const found = await ask("/api/session", { session: state.session });
  if (found.id !== state.session || state.view !== "conversation") return;
  document.title = `${found.name} · standfast inspector`;
  $("title").textContent = found.name;
  state.costs = new Map(found.costs.map((one) => [one.run, one]));
  state.spoken = found.spoken;
  for (const node of document.querySelectorAll("#turns .said[data-number]")) addHeard(node);
  const total = found.costs.reduce((sum, one) => sum + one.total.total, 0);
  const further = [
    total ? `${number(total)} tokens in ${count(found.costs.length, "run")}` : "",
    found.origin ? `a fork of ${found.origin.name}, behind ${count(found.origin.index, "item")}${by(found.origin)}` : "",
    found.generations.length ? `${count(found.generations.length, "replaced part")} kept${by(found.generations[0], ", the last replaced")}` : "",
    found.holder ? `held by ${found.holder.name} until ${clock(found.holder.until)}` : "",
  ].filter(Boolean);
  $("facts").replaceChildren(...(found.updated ? ["changed ", time(found.updated)] : ["nothing stored"]), ...further.map((one) => ` · ${one}`));
  $("open").replaceChildren(...found.open.map(openRun));
}

async function open(session) {
  const mine = ++state.place;
  state.session = session;
  $("turns").replaceChildren();
  $("open").replaceChildren();
  marked();
  await about();
  const page = await ask("/api/items", { session });
  if (state.place !== mine) return;
  state.before = page.before;
  $("earlier").hidden = !page.before;
  append(page.records);
  listen(session, page.after);
  $("talk").focus({ preventScroll: true });
  // What waits for the reader first; else the newest.
  const waits = document.querySelector("#open .waits");
  if (waits) waits.scrollIntoView({ block: "center" }); else $("talk").scrollTop = $("talk").scrollHeight;
}

const earlier = tried(async () => {
  const session = state.session;
  const page = await ask("/api/items", { session, before: state.before });
  if (state.session !== session) return;
  const height = $("talk").scrollHeight;
  prepend(page.records);
  $("talk").scrollTop += $("talk").scrollHeight - height;
  state.before = page.before;
  $("earlier").hidden = !page.before;
});

// --- what is open: the store, a conversation or a run, as the address says -------------------------------------------

const go = tried(async () => {
  state.stream?.abort();
  const place = placeOfAddress();
  const [view, show] = place.get("run") ? ["run", () => showRun(place.get("run"))]
    : place.get("session") ? ["conversation", () => open(place.get("session"))] : ["overview", showOverview];
  state.view = view;
  if (view !== "conversation") state.session = null;
  marked();
  for (const name of ["overview", "run", "conversation"]) $(name).hidden = name !== view;
  $("live").textContent = "";
  $("columns").dataset.view = view;
  await show();
});

async function* events(answer) {
  // Server-sent events, read by hand: the browser's own reader sends no header of ours.
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const event = {};
      for (const row of block.split("\n")) {
        const at = row.indexOf(": ");
        if (at > 0) event[row.slice(0, at)] = row.slice(at + 2);
      }
      if (event.event) yield event;
    }
  }
}

async function listen(session, after) {
  const stopping = state.stream = new AbortController();
  const fresh = tried(async () => { await about(); await list(); });
  let last = null;
  let soon;
  while (!stopping.signal.aborted) {
    try {
      const more = last ? { "last-event-id": last } : {};
      const answer = await fetch(`/api/events?${new URLSearchParams({ session, after })}`, { headers: headers(more), signal: stopping.signal });
      if (answer.status === 401) return problem(NO_TOKEN);
      if (answer.ok) {
        for await (const { event, id, data } of events(answer)) {
          if (stopping.signal.aborted) return;
          if (event === "record") {
            last = id;
            const record = JSON.parse(data);
            if (document.querySelector(`[data-cursor="${CSS.escape(record.cursor)}"]`)) continue;
            const atEnd = $("talk").scrollHeight - $("talk").scrollTop - $("talk").clientHeight < 80;
            append([record]);
            if (atEnd) $("talk").scrollTop = $("talk").scrollHeight;
            clearTimeout(soon);
            soon = setTimeout(fresh, 300);
          } else if (event === "runs") fresh();
          else if (event === "unreadable") problem(JSON.parse(data).why);
          else if (event === "replaced") {
            await go();
            $("live").textContent = "The history was replaced; this is the new one.";
            return;
          }
        }
      }
    } catch {
      if (stopping.signal.aborted) return;
      problem(GONE);
    }
    await new Promise((done) => setTimeout(done, 500));
  }
}

// --- the beginning ---------------------------------------------------------------------------------------------------

let typing;
$("words").addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(list, 200); });
$("waiting").addEventListener("change", () => list());
$("find").addEventListener("submit", (event) => { event.preventDefault(); document.querySelector("#sessions button")?.click(); });
$("more").addEventListener("click", () => list(true));
$("earlier").addEventListener("click", earlier);
$("back").addEventListener("click", () => location.assign("#"));
$("enter").addEventListener("submit", (event) => {
  event.preventDefault();
  const given = $("token").value.trim();
  sessionStorage.setItem(TOKEN, new URLSearchParams(given.slice(given.indexOf("#") + 1)).get("token") ?? given);
  location.reload();
});
document.addEventListener("keydown", (event) => {
  if (["INPUT", "TEXTAREA"].includes(document.activeElement.tagName)) {
    if (event.key === "Escape") $("talk").focus({ preventScroll: true });
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const rows = [...document.querySelectorAll("#sessions button")];
  const at = rows.indexOf(document.activeElement);
  if (event.key === "/") $("words").focus();
  else if (event.key === "j") rows[Math.min(at + 1, rows.length - 1)]?.focus();
  else if (event.key === "k") rows[Math.max(at - 1, 0)]?.focus();
  else return;
  event.preventDefault();
});
tried(async () => {
  const facts = await ask("/api/store");
  state.writes = facts.writes;
  $("store").textContent = `${facts.url} · ${facts.writes ? "you can decide, fork and undo here" : "to look at only"}`;
  await list();
  await go();
})();
