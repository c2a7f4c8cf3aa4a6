// How much of each shared allowance is left, and which of the governor's patterns is at work?
import { attribute, byId, make, reconcile, shown, style, text } from "./dom.js";
import { count, duration, percent, plural } from "./format.js";
import { state } from "./state.js";

const LIGHTS = { green: "ok", amber: "warn", red: "bad" };
const WORDS = { green: "● free", amber: "◐ short", red: "■ spent" }; // a mark and a word beside the colour
const BARS = { green: "ok", amber: "held", red: "bad" };

export function render() {
  const targets = state.status.quota?.targets || [];
  for (const id of ["quotas", "to-quotas"]) shown(byId(id), targets.length > 0);
  const red = targets.filter((each) => each.traffic_light.light === "red").length;
  text(byId("quotas-note"), targets.length ? `${plural(targets.length, "target")}${red ? `, ${count(red)} spent` : ""}` : "");
  reconcile(byId("quota-cards"), targets, (each) => each.name, card, fill);
}

function card(target) {
  const head = make("h3", {}, make("span", { textContent: target.name }), make("small", { textContent: target.profile }), make("span", { className: "pill" }));
  return make("article", { className: "quota", "aria-label": target.name }, head, make("ul", { className: "scopes" }), make("ul", { className: "patterns" }));
}

function fill(element, target) {
  const [head, scopes, patterns] = element.children;
  const light = target.traffic_light.light;
  text(head.lastChild, WORDS[light] || light);
  head.lastChild.className = `pill ${LIGHTS[light] || ""}`;
  reconcile(scopes, target.traffic_light.scopes, (each) => each.name, scopeRow, fillScope);
  const lines = said(target);
  reconcile(patterns, lines, (line) => line[0], (line) => make("li", {}, make("b", { textContent: line[0] }), make("span")), (item, line) => {
    text(item.lastChild, line[1]);
    item.className = line[2] || "";
  });
}

function scopeRow() {
  return make("li", { className: "scope" }, make("span"), make("div", { className: "meter thin", role: "img" }, make("i")), make("small"));
}

function fillScope(item, scope) {
  const [name, bar, figures] = item.children;
  text(name, scope.name);
  attribute(name, "title", scope.name);
  const part = scope.capacity > 0 ? Math.max(0, Math.min(1, scope.free / scope.capacity)) : 0;
  style(bar.firstChild, "width", `${100 * part}%`);
  bar.firstChild.className = BARS[scope.light] || "ok";
  attribute(bar, "aria-label", `${percent(part)} free`);
  const until = scope.blocked_seconds > 0 ? `, shut for ${duration(scope.blocked_seconds)}` : scope.renews_seconds !== null ? `, renews in ${duration(scope.renews_seconds)}` : "";
  text(figures, `${count(Math.round(scope.free))} of ${count(scope.capacity)}${until}`);
}

/** What the patterns do now: name, words, and a class where it is a matter. Those that do nothing are left out. */
function said(target) {
  const { breaker, shared_pool: pool, cascade, leases, retry_windows: windows } = target;
  const lines = [["In flight", `${count(leases.out)} (${leases.by_class.map((each, rank) => `P${rank} ${each}`).join(", ")})`]];
  const waiting = pool.waiting.reduce((a, b) => a + b, 0);
  if (waiting) lines.push(["Waiting", `${count(waiting)} (${pool.waiting.map((each, rank) => `P${rank} ${each}`).join(", ")})`]);
  if (breaker.mode !== "closed") {
    const until = breaker.open_seconds === null ? ", until the bill is paid" : breaker.open_seconds ? `, for ${duration(breaker.open_seconds)}` : "";
    lines.push(["Breaker", `${breaker.mode.replaceAll("_", " ")}${until}; ${plural(breaker.strikes, "strike")}`, "matter"]);
  }
  if (breaker.level) lines.push(["Degraded", `level ${breaker.level} of 3`, "matter"]);
  if (cascade.sequential) lines.push(["Cascade", `one call at a time for ${duration(cascade.seconds_max)}: ${cascade.limited.join(", ")} met a limit`, "matter"]);
  if (windows.anchor_seconds !== null && windows.anchor_seconds > 0) lines.push(["Retries", `from ${duration(windows.anchor_seconds)} on, P0 first`]);
  for (const each of pool.reservations) lines.push([`Share of ${each.caller}`, percent(each.share)]);
  const busiest = Object.entries(leases.callers).slice(0, 3);
  if (busiest.length) lines.push(["Busiest", busiest.map(([caller, out]) => `${caller} ${out}`).join(", ")]);
  return lines;
}
