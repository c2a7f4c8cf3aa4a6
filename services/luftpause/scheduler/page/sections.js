// What do replicas, callers, held turns and counters look like now, and what needs attention?
import { attribute, byId, make, reconcile, rows, shown, style, text } from "./dom.js";
import { count, duration, percent, plural, rate } from "./format.js";
import { perSecond, state } from "./state.js";
import { VirtualTable, plain } from "./virtual.js";

const CALLERS_MAX = 100;
const MODELS_MAX = 3;
let held;
const said = new Set();

export function start() {
  held = new VirtualTable(byId("held-table"), {
    label: "Held turns, oldest first",
    rowHeight: 30,
    rowsMax: 12,
    key: (turn) => turn.turn,
    columns: [
      { title: "Run", track: "minmax(5rem, 1.2fr)", fill: (cell, turn) => titled(cell, turn.run || turn.turn) },
      { title: "Held for", track: "5.6rem", className: "num", fill: plain((turn) => duration(turn.held_seconds + (performance.now() - state.statusAt) / 1000)) },
      { title: "Reason", track: "5.6rem", fill: (cell, turn) => titled(cell, turn.reason || "–") },
      { title: "Waits for", track: "minmax(7rem, 2fr)", fill: (cell, turn) => titled(cell, turn.waits_for) },
      { title: "Caller", track: "minmax(3rem, .9fr)", className: "optional", fill: (cell, turn) => titled(cell, turn.caller || "–") },
      { title: "Class", track: "6.2rem", className: "optional", fill: plain((turn) => turn.turn_class) },
    ],
  });
}

function titled(cell, value) {
  text(cell, value);
  if (cell.title !== value) cell.title = value;
}

export function render() {
  const status = state.status;
  facts(status);
  notices(status);
  tiles(status);
  replicas(status.state);
  heldTurns(status.state);
  callers(status.state);
  counters(status);
}

function facts(status) {
  text(byId("policy"), status.state.policy);
  text(byId("facts"), `up ${duration(status.uptime_seconds)} · ${rate(status.events_per_second)} events/s · ${plural(status.state.dataplanes.filter((each) => each.connected).length, "dataplane")}`);
}

// ---- what needs attention ----------------------------------------------------------------------------------------

function problems(status) {
  const found = [];
  const core = status.state;
  if (!core.placing) found.push(["placing", "Nothing is placed yet: the scheduler waits for the dataplanes that it expects after a start."]);
  for (const replica of core.replicas) {
    const name = replica.name;
    if (replica.health === "unhealthy") found.push([`unhealthy ${name}`, `${name} is unhealthy; no turns go there.`, `for ${duration(replica.health_seconds)}`]);
    if (replica.health === "unknown") found.push([`unknown ${name}`, `${name} has not answered a probe yet.`]);
    if (replica.load === "unknown") found.push([`load ${name}`, `${name} no longer reports its load; its last cap holds.`]);
    if (replica.suspected_by.length) found.push([`suspected ${name}`, `${replica.suspected_by.join(", ")} could not connect to ${name}.`]);
    if (replica.unusable_by.length) found.push([`unusable ${name}`, `${replica.unusable_by.join(", ")} lacks the key of ${name} (api_key_env).`]);
  }
  for (const plane of core.dataplanes) if (!plane.connected) found.push([`lost ${plane.name}`, `Dataplane ${plane.name} is not connected.`]);
  if (!core.dataplanes.length) found.push(["no dataplane", "No dataplane is connected: turns can't reach the engines."]);
  const store = status.quota?.store;
  if (store && store.mode !== "up") found.push(["store", `The shared ledger of quotas is ${store.mode}: this node keeps to its safe share.`]);
  for (const target of status.quota?.targets || []) {
    if (target.breaker.mode === "disabled") found.push([`unpaid ${target.name}`, `Quota ${target.name} is out of credit: no call goes there until it is paid and enabled.`]);
  }
  if (status.unknown_facts) found.push(["facts", "A dataplane says what this scheduler does not know: it is of a newer version."]);
  return found;
}

function notices(status) {
  const found = problems(status);
  shown(byId("notices"), found.length > 0);
  reconcile(byId("notices"), found, (each) => each[0], () => make("li", {}, make("span"), make("small")), (item, each) => {
    text(item.firstChild, each[1]);
    text(item.lastChild, each[2] || "");
  });
  const keys = new Set(found.map((each) => each[0]));
  const fresh = found.filter((each) => !said.has(each[0])).map((each) => each[1]);
  const over = [...said].filter((each) => !keys.has(each));
  if (fresh.length || over.length) text(byId("live"), fresh.join(" ") || "What needed attention is over.");
  said.clear();
  for (const key of keys) said.add(key);
}

// ---- at a glance -------------------------------------------------------------------------------------------------

function tiles(status) {
  const core = status.state;
  const inFlight = core.held_by_class.reduce((sum, each) => sum + each.in_flight, 0);
  const longest = Math.max(...core.held_by_class.map((each) => each.longest_wait_seconds));
  const phases = Object.fromEntries(Object.entries(core.runs).map(([phase, classes]) => [phase, Object.values(classes).reduce((a, b) => a + b, 0)]));
  const healthy = core.replicas.filter((each) => each.health === "healthy").length;
  const placed = perSecond((each) => each.decisions.Place || 0);
  const lines = [
    ["Replicas healthy", `${healthy} of ${core.replicas.length}`, core.replicas_removed.length ? `${plural(core.replicas_removed.length, "removed one")} still busy` : "", healthy < core.replicas.length ? "bad" : ""],
    ["In flight", count(inFlight), core.held_by_class.map((each) => `${count(each.in_flight)} ${each.name}`).join(", ")],
    ["Held", count(core.held), core.held ? `longest ${duration(longest)}` : "nothing waits", core.held ? "warn" : ""],
    ["Placed per second", placed === null ? "–" : rate(placed), `${count(status.decisions.Place || 0)} since the start`],
    ["Runs generating", count(phases.generating), `${count(phases.paused)} paused in tools`],
    ["Callers", count(core.callers), "held or in flight"],
  ];
  reconcile(byId("tiles"), lines, (line) => line[0], (line) => make("div", {}, make("dt", { textContent: line[0] }), make("dd"), make("dd", { className: "note" })), (tile, line) => {
    text(tile.children[1], line[1]);
    text(tile.children[2], line[2]);
    tile.className = line[3] || "";
  });
}

// ---- replicas ----------------------------------------------------------------------------------------------------

const HEALTH = { healthy: "ok", unhealthy: "bad", unknown: "warn" };

function replicas(core) {
  const all = [...core.replicas, ...core.replicas_removed.map((each) => ({ ...each, removed: true }))];
  shown(byId("no-replicas"), !all.length);
  shown(byId("replica-table"), all.length > 0);
  const widest = Math.max(1, ...all.map((each) => Math.max(each.cap ?? 0, each.in_flight + each.paused_interactive)));
  rows(byId("replica-table").tBodies[0], all, (each) => each.name, [
    (cell, each) => {
      titled(cell, each.name);
      if (cell.title !== each.url) cell.title = each.url;
    },
    (cell, each) => health(cell, each),
    (cell, each) => meter(cell, each, widest),
    (cell, each) => text(cell, each.cap === null ? `${each.in_flight} / no cap` : `${each.in_flight} / ${each.cap}`),
    (cell, each) => text(cell, each.load === "known" ? count(each.running) : each.load === "unknown" ? "lost" : "–"),
    (cell, each) => text(cell, each.load === "known" ? count(each.waiting) : "–"),
    (cell, each) => text(cell, count(each.held)),
    (cell, each) => {
      const models = each.models || [];
      const more = models.length > MODELS_MAX ? ` and ${models.length - MODELS_MAX} more` : "";
      text(cell, each.models === null ? "not known yet" : models.slice(0, MODELS_MAX).join(", ") + more || "none");
      if (cell.title !== models.join(", ")) cell.title = models.join(", ");
    },
  ], ["", "", "wide", "num", "num", "num", "num", "dim"]);
}

function health(cell, each) {
  if (!cell.firstChild) cell.append(make("span", { className: "pill" }));
  const name = each.removed ? "removed" : each.health;
  text(cell.firstChild, name);
  const kind = `pill ${each.removed ? "warn" : HEALTH[each.health]}`;
  if (cell.firstChild.className !== kind) cell.firstChild.className = kind;
  const why = `${name} for ${duration(each.health_seconds)}${each.misses ? `, ${plural(each.misses, "missed probe")}` : ""}`;
  if (cell.title !== why) cell.title = why;
}

function meter(cell, each, widest) {
  if (!cell.firstChild) cell.append(make("div", { className: "meter", role: "img" }, make("i", { className: "interactive" }), make("i", { className: "batch" }), make("i", { className: "kept" }), make("b", { className: "cap" })));
  const bar = cell.firstChild;
  const parts = [each.in_flight_by_class.interactive, each.in_flight_by_class.batch, each.paused_interactive];
  parts.forEach((part, index) => style(bar.children[index], "width", `${(100 * part) / widest}%`));
  shown(bar.lastChild, each.cap !== null);
  if (each.cap !== null) style(bar.lastChild, "left", `${(100 * each.cap) / widest}%`);
  const cap = each.cap === null ? "no cap" : `cap ${each.cap}`;
  attribute(bar, "aria-label", `${each.in_flight} in flight, ${cap}: ${parts[0]} interactive, ${parts[1]} batch, ${plural(parts[2], "place")} kept for paused runs`);
}

// ---- held turns --------------------------------------------------------------------------------------------------

function heldTurns(core) {
  const reasons = Object.entries(core.held_by_reason).map(([name, classes]) => [name, Object.values(classes).reduce((a, b) => a + b, 0)]).filter((each) => each[1]);
  shown(byId("held-table"), core.held > 0);
  shown(byId("no-held"), core.held === 0);
  shown(byId("reasons"), reasons.length > 0);
  const cut = core.held > core.held_turns.length ? `the oldest ${count(core.held_turns.length)} of ${count(core.held)}` : plural(core.held, "turn");
  text(byId("held-note"), core.held ? cut : "");
  bars(byId("reasons"), reasons, core.held);
  held.setItems(core.held_turns);
}

function bars(list, items, whole) {
  reconcile(list, items, (each) => each[0], (each) => make("li", {}, make("span", { textContent: each[0] }), make("i"), make("b")), (item, each) => {
    style(item.children[1], "width", `${(60 * each[1]) / Math.max(1, whole)}%`);
    text(item.lastChild, count(each[1]));
  });
}

export function tick() {
  if (state.status && state.status.state.held) held.draw();
}

// ---- callers -----------------------------------------------------------------------------------------------------

function callers(core) {
  const waits = new Map(core.held_by_caller.map((each) => [each.name, each.longest_wait_seconds]));
  const all = new Map([...core.callers_busiest, ...core.held_by_caller].map((each) => [each.name, each]));
  const most = [...all.values()].sort((a, b) => b.in_flight - a.in_flight || b.held - a.held || (a.name < b.name ? -1 : 1)).slice(0, CALLERS_MAX);
  const whole = core.replicas.concat(core.replicas_removed).reduce((sum, each) => sum + each.in_flight + each.passes, 0);
  shown(byId("caller-table").parentNode, most.length > 0);
  shown(byId("no-callers"), !most.length);
  text(byId("callers-note"), core.callers > most.length ? `${most.length} of ${count(core.callers)}` : "");
  rows(byId("caller-table").tBodies[0], most, (each) => each.name, [
    (cell, each) => titled(cell, each.name || "(none)"),
    (cell, each) => share(cell, each, whole),
    (cell, each) => text(cell, count(each.in_flight)),
    (cell, each) => text(cell, count(each.held)),
    (cell, each) => text(cell, waits.has(each.name) ? duration(waits.get(each.name)) : "–"),
  ], ["", "wide", "num", "num", "num"]);
}

function share(cell, each, whole) {
  if (!cell.firstChild) cell.append(make("div", { className: "beside" }, make("div", { className: "meter thin", role: "img" }, make("i", { className: "interactive" }), make("i", { className: "batch" })), make("small")));
  const [bar, part] = cell.firstChild.children;
  const width = (number) => `${(100 * number) / Math.max(1, whole)}%`;
  style(bar.children[0], "width", width(each.by_class.interactive.in_flight));
  style(bar.children[1], "width", width(each.by_class.batch.in_flight));
  const said = whole ? percent(each.in_flight / whole) : "–";
  attribute(bar, "aria-label", `${said} of what is in flight`);
  text(part, said);
}

// ---- counters ----------------------------------------------------------------------------------------------------

function counters(status) {
  const growth = (read) => {
    const value = perSecond(read);
    return value === null ? "" : value > 0 ? rate(value) : "·";
  };
  const table = (id, items, read) =>
    rows(byId(id).tBodies[0], items, (each) => each[0], [
      (cell, each) => text(cell, each[0].replaceAll("_", " ")),
      (cell, each) => text(cell, count(each[1])),
      (cell, each) => text(cell, growth((s) => read(s, each[0]))),
    ], ["", "num", "num"]);
  table("counter-table", Object.entries(status.state.counters).filter((each) => each[1]), (s, name) => s.state.counters[name] || 0);
  const all = (s) => ({ ...s.events, ...Object.fromEntries(Object.entries(s.decisions).map(([name, value]) => [`→ ${name}`, value])) });
  table("event-table", Object.entries(all(status)).sort((a, b) => (a[0] < b[0] ? -1 : 1)), (s, name) => all(s)[name] || 0);
  const sessions = new Map(status.sessions.map((each) => [each.dataplane, each]));
  rows(byId("session-table").tBodies[0], status.state.dataplanes, (each) => each.name, [
    (cell, each) => titled(cell, each.name),
    (cell, each) => text(cell, !each.connected ? "not connected" : sessions.get(each.name)?.resynced ? "connected" : "coming"),
    (cell, each) => text(cell, count(each.turns)),
    (cell, each) => text(cell, sessions.has(each.name) ? `${duration(sessions.get(each.name).heard_seconds_ago)} ago` : "–"),
  ], ["", "", "num", "num"]);
}
