// What is known of the one run that was chosen?
import { byId, make, reconcile, shown, text } from "./dom.js";
import { clock, duration } from "./format.js";
import { phaseOf, state } from "./state.js";
import { NAMES, stretches } from "./timeline.js";

const SHOWN_MAX = 14;
let number = null;
let close = () => {};

export function start(onClose) {
  close = onClose;
}

export function choose(run) {
  number = run ? run.number : null;
  const panel = byId("detail");
  panel.replaceChildren();
  if (run) {
    const button = make("button", { type: "button", className: "close", textContent: "Close" });
    button.addEventListener("click", () => {
      close(number);
      choose(null);
    });
    panel.append(make("h3"), button, make("dl"), make("ol"));
  }
  render();
}

export function render() {
  const run = number === null ? null : state.runs.get(number);
  shown(byId("detail"), Boolean(run));
  if (!run) return;
  const [title, , facts, list] = byId("detail").children;
  text(title, run.run);
  const children = [...state.runs.values()].filter((each) => each.parent === run.run).length;
  const [phase, since, what] = phaseOf(run);
  const lines = [
    ["Doing", `${NAMES[phase]}${what ? ` (${what})` : ""} for ${duration((Date.now() - since) / 1000)}`],
    ["Model", run.model || "–"],
    ["Home", run.replica || "–"],
    ["Caller", run.caller || "–"],
    ["Class", run.turn_class],
    ["Turns", String(run.turns)],
    ["Parent", run.parent || "–"],
    ["Children seen", String(children)],
  ];
  reconcile(facts, lines, (line) => line[0], (line) => make("div", {}, make("dt", { textContent: line[0] }), make("dd")), (div, line) => text(div.lastChild, line[1]));
  const newest = stretches(run).reverse().sort((a, b) => b[1] - a[1]).slice(0, SHOWN_MAX);
  reconcile(
    list,
    newest,
    (each) => `${each[0]} ${each[1] - state.offset}`,
    (each) => make("li", {}, make("time", { textContent: clock(each[1]) }), make("i", { className: `sw ${each[0]}` }), make("span"), make("b")),
    (item, each) => {
      text(item.children[2], NAMES[each[0]] + (each[3] ? ` · ${each[3]}` : ""));
      text(item.children[3], each[0] === "over" ? "" : duration((each[2] - each[1]) / 1000));
    },
  );
}
