// What is asked when, and what is said when it can't be had?
import { anyToken, ask, AskError, forget, keep, runtimeBase, token } from "./api.js";
import * as charts from "./charts.js";
import * as detail from "./detail.js";
import { byId, shown, text } from "./dom.js";
import { clock, duration } from "./format.js";
import * as quotas from "./quotas.js";
import * as sections from "./sections.js";
import { state, takeRuntime, takeStatus, takeTimeline } from "./state.js";
import * as timeline from "./timeline.js";
import * as tree from "./tree.js";

const POLL_MS = 2000;
const HELD_SHOWN = 500;
const link = { lostAt: null, heardAt: null };
const declined = new Set(); // origins whose token nobody wanted to give
let runtime = null;
let wake = null;

async function scheduler() {
  try {
    const [status, lately] = await Promise.all([ask(`status?held=${HELD_SHOWN}&callers=200`), ask(`timeline?since=${state.cursor}`)]);
    if (!status.scheduler_epoch || !status.state) throw new AskError("refused", `${location.origin} is not a scheduler of luftpause`);
    takeStatus(status);
    if (!takeTimeline(lately)) takeTimeline(await ask("timeline?since=0"));
  } catch (error) {
    return lost(error);
  }
  found();
  sections.render();
  quotas.render();
  charts.render();
  timeline.render();
  detail.render();
}

async function runs() {
  if (!runtime) return;
  let answer;
  try {
    answer = await ask(`${runtime}/status`);
    if (!Array.isArray(answer.runs)) throw new AskError("refused", answer.scheduler_epoch ? `${runtime} is a scheduler; a runtime listens on port 7000` : `${runtime} is not a runtime of luftpause`);
  } catch (error) {
    if (error.kind === "token") want(new URL(runtime).origin, "The runtime", error);
    else if (error.kind !== "unreachable" && !(error instanceof AskError)) throw error;
    return tree.problem(`Can't show the runs of ${runtime}: ${error.message}. Asking again every two seconds.`);
  }
  tree.problem("");
  takeRuntime(answer);
  tree.render();
}

// ---- the link to the scheduler -----------------------------------------------------------------------------------

function found() {
  if (link.lostAt !== null) text(byId("live"), "The scheduler is back.");
  link.lostAt = null;
  link.heardAt = Date.now();
  show("live", "live");
  shown(byId("banner"), false);
  byId("main").classList.remove("stale");
}

function lost(error) {
  if (!(error instanceof AskError)) throw error;
  if (error.kind === "token") {
    show("warn", "token wanted");
    want(location.origin, "The scheduler", error);
  } else show("bad", "lost, retrying");
  if (link.lostAt === null) {
    link.lostAt = Date.now();
    text(byId("live"), error.kind === "token" ? "The scheduler wants a token." : "The scheduler is lost; trying again.");
  }
  const known = link.heardAt ? ` What you see is of ${clock(link.heardAt)}.` : "";
  const how = error.kind === "token" ? "" : ` for ${duration((Date.now() - link.lostAt) / 1000)}; retrying every two seconds`;
  text(byId("banner"), `${error.kind === "token" ? "No data" : "Lost the scheduler"}${how}: ${error.message}.${known}`);
  shown(byId("banner"), true);
  byId("main").classList.toggle("stale", Boolean(link.heardAt));
}

function show(kind, said) {
  byId("link").className = `link ${kind}`;
  text(byId("link-text"), said);
  shown(byId("token"), anyToken() || declined.size > 0);
  text(byId("token"), declined.size ? "Give a token" : "Forget token");
}

// ---- tokens ------------------------------------------------------------------------------------------------------

/** Ask for the token of an origin, unless that is being done or was declined. */
function want(origin, who, error) {
  const dialog = byId("ask");
  if (dialog.open || declined.has(origin)) return;
  text(byId("ask-why"), `${who} at ${origin} wants one${token(origin) ? ", and not the one that it was shown" : ""}: ${error.message}.`);
  byId("ask-token").value = "";
  dialog.dataset.origin = origin;
  dialog.showModal();
}

function tokens() {
  const dialog = byId("ask");
  dialog.querySelector("form").addEventListener("submit", () => {
    keep(dialog.dataset.origin, byId("ask-token").value.trim());
    byId("ask-token").value = "";
    soon();
  });
  const decline = () => {
    declined.add(dialog.dataset.origin);
    dialog.close();
    soon();
  };
  byId("ask-not").addEventListener("click", decline);
  dialog.addEventListener("cancel", decline);
  byId("token").addEventListener("click", () => {
    if (!declined.size) forget();
    declined.clear();
    soon();
  });
}

// ---- the loop ----------------------------------------------------------------------------------------------------

function soon() {
  if (wake) wake();
}

async function loop() {
  for (;;) {
    const next = performance.now() + POLL_MS;
    await Promise.all([scheduler(), runs()]).catch((error) => console.error(error));
    await new Promise((resolve) => {
      wake = resolve;
      setTimeout(resolve, Math.max(100, next - performance.now()));
    });
    while (document.hidden) await new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
  }
}

function start() {
  charts.start();
  sections.start();
  tree.start();
  timeline.start((run) => detail.choose(run));
  detail.start((number) => timeline.selectedGone(number));
  tokens();
  try {
    runtime = runtimeBase(location.search);
  } catch (error) {
    tree.problem(`Can't show a runtime's runs: ${error.message}.`);
  }
  byId("runtime").value = new URLSearchParams(location.search).get("runtime") || "";
  setInterval(() => document.hidden || sections.tick(), 1000);
  loop();
}

start();
