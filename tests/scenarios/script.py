"""How is a scenario file read, played and recorded?

A file is a series of blocks: commands, a line of dashes, what was decided, a blank line. Lines that begin with `#` are comments. Options
are `name=value`. Time starts at 0 and moves with `wait` only, which sends what a host sends: `Tick` at each `wake_at`, `Continue` while
there is more.

    settings KEY=VALUE ...            before `start`; names as in model.Settings
    replica NAME [models=m,n] [kind=classifier] [capped=no] [max=3] [apis=chat,messages] [url=U] [quota=TARGET] [fallback=m,n]
    start                             makes the state; replicas that follow take part after `config`
    hello NAME [session=S] [boot=B] [turns=T@REPLICA/RUN,...] [fence=N] [run=R home=A seq=2 paused=ID,... class=C head=H known=ID,...
                fell=m:n stored=RESPONSE,... model=M ago=SECONDS placed=SECONDS]
    lost NAME [session=S] · alive NAME [turns=T,...] [delivering=A,...] · suspect A [on=NAME] · unusable A [on=NAME]
    probe NAME [load=RUNNING/WAITING [slots=N]] [models=m,n] [outcome=missed|refused]
    request TURN [run=R] [class=batch] [caller=C] [model=m] [kind=K] [ids=I,...] [head=H] [prev=RESPONSE] [body=B] [on=NAME] [attempt=N]
                 [principal=P] [age=SECONDS] [without=A,...] [api=messages] [priority=N] [answer=TOKENS] [bytes=N] [sent=A]
    started TURN · token TURN · tool-call TURN ids=I,... · response TURN id=RESPONSE
    grant TURN at=A [fence=N] [level=N] [attempt=N] · defer TURN at=A [wait=SECONDS] · deny TURN at=A code=C
    finish TURN [ids=I,...] [attempt=N] [usage=PROMPT/COMPLETION] · pause TURN [ids=I,...]
    fail TURN [reason=R] · abandon TURN · return TURN from=A reason=busy
    end-run RUN [principal=P] · config NAME ... · wait SECONDS · show · runs
    jump SECONDS                      the host stood still: no `Tick` was sent, and what is due is done with the next event
"""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, assert_never

from luftpause.scheduler.core.decide import decide, initial
from luftpause.scheduler.core.decisions import (
    BranchFollowed,
    CancelReserve,
    Decision,
    EndRun,
    Expire,
    Forget,
    Held,
    Lease,
    Located,
    Place,
    Probe,
    Refuse,
    ReplicasChanged,
    ReserveQuota,
    SettleQuota,
)  # fmt: skip
from luftpause.scheduler.core.events import (
    ConfigChanged,
    Continue,
    DataplaneAlive,
    DataplaneLost,
    Event,
    FirstToken,
    Kind,
    Load,
    ProbeOutcome,
    QuotaDeferred,
    QuotaGranted,
    QuotaRefused,
    ReplicaProbed,
    ReplicaSpec,
    ReplicaSuspected,
    ReplicaUnusable,
    ResponseSeen,
    Resync,
    ReturnReason,
    RunEnded,
    Tick,
    ToolCallSeen,
    TurnAbandoned,
    TurnClass,
    TurnFailed,
    TurnFinished,
    TurnRequested,
    TurnReturned,
    TurnStarted,
    Usage,
)
from luftpause.scheduler.core.memory import LaneMemory, PausedBranch, ResponseMemory, RunMemory, ToolCallMemory, TurnMemory
from luftpause.scheduler.core.model import State
from luftpause.scheduler.core.settings import CallerPriority, Settings
from luftpause.scheduler.core.view import overview

DASHES = "----"
Options = dict[str, str]


def play(path: Path) -> str:
    """The file's text with every block's decisions recorded anew."""
    script = Script()
    recorded: list[str] = []
    for block in path.read_text().rstrip("\n").split("\n\n"):
        commands = block.split(f"\n{DASHES}\n")[0].removesuffix(f"\n{DASHES}")
        lines = [line for line in commands.splitlines() if line and not line.startswith("#")]
        said = [said for line in lines for said in script.run(line)]
        recorded.append("\n".join([commands, DASHES, *(said or ["ok"])]) if lines else commands)
    return "\n\n".join(recorded) + "\n"


class Script:
    def __init__(self) -> None:
        self.settings: dict[str, Any] = {}
        self.specs: dict[str, ReplicaSpec] = {}
        self.now = 0.0
        self.state: State | None = None
        self.wake_at: float | None = None
        self.attempts: dict[str, int] = {}

    def run(self, line: str) -> list[str]:
        name, *words = shlex.split(line)
        options = dict(word.split("=", 1) for word in words if "=" in word)
        subjects = [word for word in words if "=" not in word]
        made = self.prepare(name, subjects, options)
        if made is not None:
            return made
        event = EVENTS[name](self, subjects, options)
        return self.send(event)

    def prepare(self, name: str, subjects: list[str], options: Options) -> list[str] | None:
        """Commands that are no events. None: it is an event."""
        match name:
            case "settings":
                self.settings |= {key: value_of(key, text) for key, text in options.items()}
            case "replica":
                self.specs[subjects[0]] = spec_of(subjects[0], options)
            case "start":
                self.state = initial(Settings(**self.settings), tuple(self.specs.values()), 0.0)
            case "wait":
                return self.wait(float(subjects[0]))
            case "jump":
                self.now = round(self.now + float(subjects[0]), 6)
            case "show":
                return self.show()
            case "runs":
                return self.show_runs()
            case _:
                return None
        return []

    def send(self, event: Event) -> list[str]:
        said: list[str] = []
        while True:
            assert self.state is not None, "the scenario has not started"
            step = decide(self.state, event)
            self.state, self.wake_at = step.state, step.wake_at
            for decision in step.decisions:
                if isinstance(decision, Place | Held | ReserveQuota):
                    self.attempts[decision.turn] = decision.attempt
                said.append(told(decision))
            if not step.more:
                return said
            event = Continue(self.now)

    def wait(self, seconds: float) -> list[str]:
        until = round(self.now + seconds, 6)
        said: list[str] = []
        while self.wake_at is not None and self.wake_at <= until:
            self.now = max(self.now, self.wake_at)
            said += [f"{line} (at {self.now:g})" for line in self.send(Tick(self.now))]
        self.now = until
        return said + self.send(Tick(self.now))

    def show(self) -> list[str]:
        assert self.state is not None
        seen = overview(self.state, self.now)
        caps = ["any" if replica.cap is None else replica.cap for replica in seen.replicas]
        lines = [
            f"{r.name}: {r.health}, {r.in_flight + r.passes} in flight of {cap}, {r.paused_interactive} paused"
            for r, cap in zip(seen.replicas, caps, strict=True)
        ]
        return lines + [f"held {h.turn} ({h.turn_class}, {h.reason}) waits for {h.waits_for}" for h in seen.held_turns]

    def show_runs(self) -> list[str]:
        assert self.state is not None
        runs = sorted(self.state.runs.values(), key=lambda run: run.key)
        lines = [f"{run.id}: {run.phase}" + "".join(f", {lane.model} at {lane.home or '-'}" for lane in run.lanes) for run in runs]
        return lines or ["no runs"]

    def attempt(self, turn: str, options: Options) -> int:
        return int(options.get("attempt", self.attempts.get(turn, 1)))


def value_of(key: str, text: str) -> Any:
    if key == "dataplanes_expected":
        return tuple(text.split(","))
    if key in {"cap_release", "stickiness", "turn_expiry", "no_replica", "policy"}:
        return text
    if key == "callers":  # name:priority, or name:+ who may claim any
        pairs = [pair.split(":") for pair in text.split(",")]
        return tuple(CallerPriority(name, None if said == "+" else int(said), may_claim=said == "+") for name, said in pairs)
    return float(text) if "seconds" in key or key.endswith(("_share", "_hours")) else int(text)


def listed(options: Options, key: str) -> tuple[str, ...]:
    return tuple(options[key].split(",")) if key in options else ()


def spec_of(name: str, options: Options) -> ReplicaSpec:
    return ReplicaSpec(
        name,
        options.get("url", f"http://{name}"),
        models=None if options.get("models") == "?" else listed(options, "models") or ("m",),
        kind=Kind(options.get("kind", "generative")),
        capped=options.get("capped") != "no",
        max_in_flight=int(options["max"]) if "max" in options else None,
        apis=listed(options, "apis"),
        quota=options.get("quota", ""),
        fallback=listed(options, "fallback"),
    )


def told(decision: Decision) -> str:  # noqa: C901, PLR0911, PLR0912  (one per decision)
    """One line per decision."""
    match decision:
        case Place():
            waited = f" (was {decision.hold_reason.value}, {decision.held_seconds:g} s)" if decision.hold_reason else ""
            attempt = f" attempt {decision.attempt}" if decision.attempt > 1 else ""
            verb = "count" if decision.sent else "place"
            return (
                f"{verb} {decision.turn}{attempt} at {decision.replica}, run {decision.run} #{decision.turn_seq}{waited}{leased(decision)}"
            )
        case Held():
            waits_for = f" ({', '.join(decision.waits_for)})" if decision.waits_for else ""
            return f"hold {decision.turn}: {decision.reason.value}{waits_for}, run {decision.run or '?'}"
        case Refuse():
            retry = f", retry after {decision.retry_after_seconds:g} s" if decision.retry_after_seconds else ""
            return f"refuse {decision.turn}: {decision.status} {decision.code}{retry}: {decision.message}"
        case Probe():
            return f"probe {decision.replica}"
        case ReplicasChanged():
            return "tell replicas"
        case Forget():
            return f"forget {decision.run}"
        case EndRun():
            return f"tell {decision.dataplane or 'all'}: run {decision.run} has ended"
        case BranchFollowed():
            return f"tell {decision.dataplane}: {decision.run}'s answer with {','.join(decision.ids) or 'no ids'} is followed"
        case Located():
            return f"located {decision.query}: {decision.replica or 'unknown'}"
        case Expire():
            return f"expire {decision.turn} at {decision.replica}"
        case ReserveQuota(prompt_tokens=prompt, answer_tokens=answer):
            again = " again" if decision.retry else ""
            return f"reserve {decision.turn} at {decision.replica}{again}: P{decision.priority}, {prompt} + {answer} tokens"
        case CancelReserve():
            return f"cancel {decision.turn} at {decision.replica}"
        case SettleQuota(prompt_tokens=prompt, answer_tokens=answer):
            tokens = f", {prompt} + {answer} tokens" if prompt is not None else ""
            return f"settle {decision.turn} at {decision.replica}: lease {decision.fence} {decision.outcome.value}{tokens}"
        case _:
            assert_never(decision)


def leased(place: Place) -> str:
    lease = place.lease
    if not isinstance(lease, Lease):
        return ""
    level = f", level {lease.level}" if lease.level else ""
    model = f", as {lease.model}" if lease.model else ""
    return f", lease {lease.fence}{level}{model}" if lease.fence else model


# ---- events -----------------------------------------------------------------------------------------------------


def request(s: Script, subjects: list[str], o: Options) -> Event:
    turn = subjects[0]
    return TurnRequested(
        s.now, o.get("on", "d"), turn, s.attempt(turn, o), f"fresh-{turn}", o.get("model", "m"),
        TurnClass.BATCH if o.get("class") == "batch" else TurnClass.INTERACTIVE, o.get("caller", ""), o.get("run", ""),
        kind=Kind(o.get("kind", "generative")), tool_call_ids=listed(o, "ids"), head_digest=o.get("head", "").encode(),
        previous_response=o.get("prev", ""), body_hash=o.get("body", "").encode(), arrived=max(s.now - float(o.get("age", "0")), 1e-9),
        without=listed(o, "without"), principal=o.get("principal", ""), api=o.get("api", "chat"), body_bytes=int(o.get("bytes", "0")),
        priority=int(o.get("priority", "-1")), answer_tokens_max=int(o.get("answer", "0")), sent_to=o.get("sent", ""),
    )  # fmt: skip


def hello(s: Script, subjects: list[str], o: Options) -> Event:
    runs: tuple[RunMemory, ...] = ()
    then = s.now - float(o.get("ago", "0"))
    if "run" in o:
        turn_class = TurnClass.BATCH if o.get("class") == "batch" else TurnClass.INTERACTIVE
        branches = (PausedBranch(listed(o, "paused"), then),) if "paused" in o else ()
        lane = LaneMemory(o.get("model", "m"), o["home"], int(o.get("seq", "1")), branches, then)
        known = tuple(ToolCallMemory(id_, o.get("head", "").encode(), then) for id_ in listed(o, "known"))
        stored = tuple(ResponseMemory(id_, o["home"], then) for id_ in listed(o, "stored"))
        placed = s.now - float(o["placed"]) if "placed" in o else 0.0
        fell = tuple((model, other) for model, _, other in [pair.partition(":") for pair in listed(o, "fell")])
        runs = (
            RunMemory(o["run"], turn_class, o.get("caller", ""), lane.turn_seq, then, "", (lane,), known, stored, placed=placed, fell=fell),
        )
    turns: list[TurnMemory] = []
    for text in listed(o, "turns"):
        turn, _, place = text.partition("@")
        replica, _, run = place.partition("/")
        turns.append(
            TurnMemory(turn, s.attempts.get(turn, 1), run, "m", replica, 1, TurnClass.INTERACTIVE, "", then, fence=int(o.get("fence", "0")))
        )
    return Resync(s.now, subjects[0], o.get("session", "s1"), o.get("boot", "b1"), runs, tuple(turns))


def probe(s: Script, subjects: list[str], o: Options) -> Event:
    slots = int(o["slots"]) if "slots" in o else None
    load = Load(*(int(part) for part in o["load"].split("/")), slots=slots) if "load" in o else None
    return ReplicaProbed(s.now, subjects[0], ProbeOutcome(o.get("outcome", "ok")), load, listed(o, "models") or None)


def finished(s: Script, subjects: list[str], o: Options, *, paused: bool) -> Event:
    usage = Usage(*(int(part) for part in o["usage"].split("/"))) if "usage" in o else None
    attempt = s.attempt(subjects[0], o)
    return TurnFinished(s.now, o.get("on", "d"), subjects[0], attempt, usage=usage, paused=paused, tool_call_ids=listed(o, "ids"))


def denied(s: Script, subjects: list[str], o: Options) -> Event:
    return QuotaRefused(s.now, subjects[0], s.attempt(subjects[0], o), o["at"], 429, o["code"], "the governor says no", 2.0)


EVENTS: dict[str, Callable[[Script, list[str], Options], Event]] = {
    "request": request,
    "hello": hello,
    "probe": probe,
    "lost": lambda s, w, o: DataplaneLost(s.now, w[0], o.get("session", "s1")),
    "alive": lambda s, w, o: DataplaneAlive(s.now, w[0], listed(o, "turns") or None, listed(o, "delivering")),
    "suspect": lambda s, w, o: ReplicaSuspected(s.now, o.get("on", "d"), w[0]),
    "unusable": lambda s, w, o: ReplicaUnusable(s.now, o.get("on", "d"), w[0], "no key"),
    "started": lambda s, w, o: TurnStarted(s.now, o.get("on", "d"), w[0], s.attempt(w[0], o)),
    "token": lambda s, w, o: FirstToken(s.now, o.get("on", "d"), w[0]),
    "tool-call": lambda s, w, o: ToolCallSeen(s.now, o.get("on", "d"), w[0], listed(o, "ids")),
    "response": lambda s, w, o: ResponseSeen(s.now, o.get("on", "d"), w[0], o["id"]),
    "grant": lambda s, w, o: QuotaGranted(s.now, w[0], s.attempt(w[0], o), o["at"], int(o.get("fence", "1")), int(o.get("level", "0"))),
    "defer": lambda s, w, o: QuotaDeferred(s.now, w[0], s.attempt(w[0], o), o["at"], float(o.get("wait", "0"))),
    "deny": denied,
    "finish": lambda s, w, o: finished(s, w, o, paused=False),
    "pause": lambda s, w, o: finished(s, w, o, paused=True),
    "fail": lambda s, w, o: TurnFailed(s.now, o.get("on", "d"), w[0], s.attempt(w[0], o), o.get("reason", "engine_died")),
    "abandon": lambda s, w, o: TurnAbandoned(s.now, o.get("on", "d"), w[0], s.attempt(w[0], o)),
    "return": lambda s, w, o: TurnReturned(s.now, o.get("on", "d"), w[0], s.attempt(w[0], o), o["from"], ReturnReason(o["reason"])),
    "end-run": lambda s, w, o: RunEnded(s.now, w[0], o.get("principal", ""), s.now - float(o["ago"]) if "ago" in o else None),
    "config": lambda s, w, o: ConfigChanged(s.now, tuple(s.specs[name] for name in w)),
}
