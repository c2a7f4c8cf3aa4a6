// Which runs does the runtime have, who spawned whom, and what has each subtree cost?
import { attribute, byId, make, shown, style, text } from "./dom.js";
import { count, duration, percent, plural } from "./format.js";
import { state } from "./state.js";
import { VirtualTable, plain } from "./virtual.js";

const STATES = { Completed: "ok", Failed: "bad", Cancelled: "warn", AwaitingApproval: "warn" };
let table;
const closed = new Set();

export function start() {
  table = new VirtualTable(byId("tree-table"), {
    label: "Runs of the runtime as a tree",
    rowHeight: 30,
    rowsMax: 16,
    key: (row) => row.run.handle,
    select: fold,
    columns: [
      { title: "Run", track: "minmax(11rem, 2fr)", className: "tree-name", fill: named },
      { title: "State", track: "9rem", fill: stated },
      { title: "Doing", track: "minmax(6rem, 1.2fr)", className: "optional", fill: (cell, row) => text(cell, waiting(row.run) || row.run.doing || "–") },
      { title: "Turns", track: "4.2rem", className: "num", fill: plain((row) => count(row.run.subtree.turns)) },
      { title: "Tools", track: "4.2rem", className: "num", fill: plain((row) => count(row.run.subtree.tool_calls)) },
      { title: "Prompt", track: "5rem", className: "num", fill: plain((row) => count(row.run.subtree.prompt_tokens)) },
      { title: "Cached", track: "4.6rem", className: "num optional", fill: plain((row) => percent(row.run.subtree.cached_tokens / row.run.subtree.prompt_tokens)) },
      { title: "Output", track: "5rem", className: "num", fill: plain((row) => count(row.run.subtree.completion_tokens)) },
      { title: "Seconds", track: "6rem", className: "num optional", fill: plain((row) => duration(row.run.subtree.turn_seconds + row.run.subtree.tool_seconds)) },
      { title: "Budget used", track: "7.5rem", className: "optional", fill: budget },
    ],
  });
}

/** A run is opened or closed by its button. */
function fold(row) {
  const handle = row ? row.run.handle : table.previous;
  table.previous = handle;
  table.selected = null;
  if (!closed.delete(handle)) closed.add(handle);
  render();
}

export function problem(message) {
  shown(byId("tree-banner"), Boolean(message));
  text(byId("tree-banner"), message || "");
  byId("tree-table").classList.toggle("stale", Boolean(message));
}

export function render() {
  if (!state.runtime) return;
  const { runs, byHandle, servers } = state.runtime;
  const roots = runs.filter((run) => !run.parent || !byHandle.has(run.parent)).reverse();
  const rows = [];
  for (const run of roots) walk(run, 0, rows, byHandle);
  shown(byId("no-tree"), !runs.length);
  shown(byId("tree-table"), runs.length > 0);
  if (!runs.length) text(byId("no-tree"), "This runtime has no runs.");
  const away = servers.filter((server) => !server.connected).map((server) => server.name);
  const alive = runs.filter((run) => !run.seconds || !["Completed", "Failed", "Cancelled"].includes(run.state)).length;
  text(byId("tree-note"), `${plural(runs.length, "run")}, ${count(alive)} not ended${away.length ? `; tool servers away: ${away.join(", ")}` : ""}. Figures are of the whole subtree.`);
  table.setItems(rows);
}

function walk(run, depth, rows, byHandle) {
  rows.push({ run, depth });
  if (closed.has(run.handle) || depth > 64) return;
  for (const child of run.children) if (byHandle.has(child)) walk(byHandle.get(child), depth + 1, rows, byHandle);
}

function named(button, row) {
  const open = row.run.children.length ? (closed.has(row.run.handle) ? "▸ " : "▾ ") : "· ";
  text(button, open + row.run.handle);
  style(button, "padding-left", `${0.3 + row.depth * 1.1}rem`);
  button.removeAttribute("aria-pressed");
  if (row.run.children.length) button.setAttribute("aria-expanded", String(!closed.has(row.run.handle)));
  else button.removeAttribute("aria-expanded");
  const title = `${row.run.handle} · ${row.run.model} · level ${row.depth + 1}`;
  if (button.title !== title) button.title = title;
}

function stated(cell, row) {
  if (!cell.firstChild) cell.append(make("span"));
  const kind = `pill ${STATES[row.run.state] || "live"}`;
  if (cell.firstChild.className !== kind) cell.firstChild.className = kind;
  text(cell.firstChild, row.run.state.replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase());
}

const waiting = (run) => (run.pending_approvals.length ? `approval of ${run.pending_approvals[0].tool}` : "");

/** The limit that is nearest to its end. */
function budget(cell, row) {
  const own = row.run.budget;
  if (!cell.firstChild) cell.append(make("div", { className: "beside" }, make("div", { className: "meter thin", role: "img" }, make("i")), make("small")));
  const [bar, said] = cell.firstChild.children;
  const limits = own ? Object.entries(own.limits).filter(([, limit]) => limit) : [];
  shown(bar, limits.length > 0);
  if (!limits.length) {
    text(said, "–");
    return;
  }
  const [part, name] = limits.map(([each, limit]) => [own.used[each] / limit, each]).sort((a, b) => b[0] - a[0])[0];
  style(bar.firstChild, "width", `${Math.min(100, 100 * part)}%`);
  bar.firstChild.className = own.exceeded || part >= 1 ? "bad" : part > 0.8 ? "held" : "interactive";
  attribute(bar, "aria-label", `${percent(part)} of ${name}`);
  text(said, percent(part));
  const title = `${name}${own.exceeded ? `, exceeded: ${own.exceeded}` : ""}`;
  if (cell.title !== title) cell.title = title;
}
