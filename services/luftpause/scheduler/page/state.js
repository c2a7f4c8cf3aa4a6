// What does the page know: the newest status, the runs' lines, what was sampled, and what the runtime said?

export const RUNS_MAX = 1000;
const CHANGES_MAX = 48;
const SAMPLES_MAX = 450;
export const PHASES = ["held", "prefill", "decode", "tool", "approval", "idle", "over"];

export const state = {
  status: null,
  before: null, // {at, status} of the poll before
  statusAt: 0,
  epoch: "",
  cursor: 0,
  offset: 0, // milliseconds: wall clock minus the scheduler's
  runs: new Map(), // by number; that changed last is last
  samples: [],
  runtime: null, // {runs, byHandle, servers}
  approvals: new Map(), // run -> [[from, until or null, tool]]; wall clock
};

export function takeStatus(status) {
  if (state.status && state.status.scheduler_epoch === status.scheduler_epoch) state.before = { at: state.statusAt, status: state.status };
  else state.before = null;
  state.status = status;
  state.statusAt = performance.now();
}

/** False: it is another scheduler than before, so that all has to be asked for anew. */
export function takeTimeline(answer) {
  if (answer.scheduler_epoch !== state.epoch) {
    state.runs.clear();
    state.samples = [];
    state.epoch = answer.scheduler_epoch;
    if (answer.since !== 0) {
      state.cursor = 0;
      return false;
    }
  }
  state.cursor = answer.cursor;
  state.offset = Date.now() - answer.now_ms;
  for (const line of answer.runs.reverse()) take(line);
  while (state.runs.size > RUNS_MAX) state.runs.delete(state.runs.keys().next().value);
  state.samples.push(...answer.samples);
  if (state.samples.length > SAMPLES_MAX) state.samples.splice(0, state.samples.length - SAMPLES_MAX);
  return true;
}

function take(line) {
  const known = state.runs.get(line.number);
  if (known) {
    line.changes = known.changes.concat(line.changes).slice(-CHANGES_MAX);
    state.runs.delete(line.number);
  }
  state.runs.set(line.number, line);
}

export function takeRuntime(answer) {
  const byHandle = new Map(answer.runs.map((run) => [run.handle, run]));
  state.runtime = { runs: answer.runs, byHandle, servers: answer.servers };
  const now = Date.now();
  for (const run of answer.runs) {
    if (!run.pending_approvals.length && !state.approvals.has(run.handle)) continue;
    const spans = state.approvals.get(run.handle) || [];
    state.approvals.set(run.handle, spans);
    const open = spans.at(-1)?.[1] === null ? spans.at(-1) : null;
    const pending = run.pending_approvals[0];
    if (pending && !open) spans.push([1000 * pending.asked_at, null, pending.tool]);
    else if (!pending && open) open[1] = now;
  }
}

/** What the run does now, since when (wall clock), and what there is to say of it. */
export function phaseOf(run) {
  const approval = state.approvals.get(run.run)?.at(-1);
  if (approval && approval[1] === null) return ["approval", approval[0], approval[2]];
  const last = run.changes.at(-1);
  return last ? [last[1], last[0] + state.offset, last[2]] : ["idle", Date.now(), ""];
}

/** How much a number of the status has grown per second since the poll before; null where that can't be said. */
export function perSecond(read) {
  if (!state.before) return null;
  const seconds = state.status.uptime_seconds - state.before.status.uptime_seconds;
  return seconds > 0 ? Math.max(0, read(state.status) - read(state.before.status)) / seconds : null;
}
