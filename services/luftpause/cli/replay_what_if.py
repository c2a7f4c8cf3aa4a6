"""What would a log's turns have gained or lost under other rules?"""

import difflib
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from luftpause.cli.replay_fit import Fit, fit
from luftpause.cli.replay_report import Outcome, outcome, runs_text, totals_text
from luftpause.cli.replay_turns import Workload, workload
from luftpause.cli.replay_world import World, recorded
from luftpause.kit.errors import LuftpauseError
from luftpause.scheduler.core.policies import POLICIES
from luftpause.scheduler.core.settings import Settings
from luftpause.scheduler.record_log import Header
from luftpause.scheduler.replay import Log
from luftpause_fakes.engine_model import EngineParams

RECORDED: Final = "recorded"


class Report(Struct):
    """What was recorded, what the simulation gives with the recorded rules, and what with the changed ones."""

    header: Header
    found: Workload
    fit: Fit
    changes: dict[str, Any]
    recorded: Outcome
    same: Outcome
    changed: Outcome

    def text(self, runs: int) -> str:
        changes = ", ".join(f"{name}={value}" for name, value in self.changes.items())
        rows = {RECORDED: self.recorded, "simulated, as recorded": self.same, f"simulated, {changes}": self.changed}
        return "\n".join([
            *self._about(),
            totals_text(rows),
            "",
            "The first two lines of each table show how far the simulation is from what was; judge the third by the second.",
            "",
            runs_text(self.same, self.changed, runs),
        ])

    def _about(self) -> list[str]:
        turns, guessed = len(self.found.turns), self.found.guessed
        left_out = ", ".join(f"{number:,} {why}" for why, number in sorted(self.found.left_out.items()))
        figures = ", ".join(
            f"{name} {getattr(self.fit.params, name):.6g} ({source})"
            for name, source in self.fit.sources.items()
            if getattr(self.fit.params, name) is not None
        )
        return [
            f"{turns:,} answered turns of {len(self.recorded.runs):,} runs, policy {self.header.policy}; left out: {left_out or 'none'}",
            f"tokens of {guessed:,} turns were guessed, as their usage is not in the log"
            if guessed
            else "tokens of all turns are from the log",
            f"engines: {figures}",
        ]

    def json(self) -> str:
        document = {
            "log": {"luftpause": self.header.luftpause, "policy": self.header.policy, "recorded_at": self.header.recorded_at},
            "changes": self.changes,
            "turns": len(self.found.turns),
            "turns_guessed": self.found.guessed,
            "turns_left_out": dict(self.found.left_out),
            "engine": self.fit,
            RECORDED: self.recorded,
            "simulated_as_recorded": self.same,
            "simulated": self.changed,
        }
        return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def what_if(path: Path, policy: str | None, settings: list[str], engine: list[str]) -> Report:
    """Raises LuftpauseError where an option names nothing known, or the log has no answered turns; OSError."""
    given = _figures(engine)
    with path.open("rb") as lines:
        log = Log(lines)
        changed, changes = _changed(log.header.settings, policy, settings)
        found = workload(log.header, log)
    if not found.turns:
        raise LuftpauseError(f"{path} has no answered turns to simulate", code="no_turns")
    fitted = fit(found, given)
    same, other = (outcome(World(found, rules, fitted.params).play()) for rules in (log.header.settings, changed))
    return Report(log.header, found, fitted, changes, outcome(recorded(found.turns)), same, other)


def _changed(recorded: Settings, policy: str | None, settings: list[str]) -> tuple[Settings, dict[str, Any]]:
    if policy is not None and policy not in POLICIES:
        raise LuftpauseError(f"--policy {policy}: unknown; known: {', '.join(sorted(POLICIES))}", code="unknown_policy")
    changes: dict[str, Any] = {"policy": policy} if policy is not None else {}
    changes |= _pairs("--set", settings, Settings.__struct_fields__)
    try:
        return msgspec.convert(msgspec.structs.asdict(recorded) | changes, Settings), changes
    except msgspec.ValidationError as error:
        raise LuftpauseError(f"--set {' '.join(settings)}: {error}{_choices(str(error))}", code="bad_setting") from error


def _choices(problem: str) -> str:
    """The values that a setting may have, where they are words; `problem` ends in its path, as "at `$.stickiness`"."""
    hint = get_type_hints(Settings).get(problem.rpartition("$.")[2].rstrip("`"))
    return f"; write {' or '.join(get_args(hint))}" if get_origin(hint) is Literal else ""


def _figures(engine: list[str]) -> dict[str, float]:
    found = _pairs("--engine", engine, EngineParams.__struct_fields__)
    for name, value in found.items():
        if not isinstance(value, int | float) or value <= 0:
            raise LuftpauseError(f"--engine {name}={value}: must be a number above 0", code="bad_setting")
    return found


def _pairs(option: str, given: list[str], known: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals or name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            meant = f"did you mean {close[0]}?" if close and name not in known else f"give KEY=VALUE with one of {', '.join(known)}"
            raise LuftpauseError(f"{option} {pair}: {meant}", code="bad_setting")
        try:
            found[name] = msgspec.json.decode(value)
        except msgspec.DecodeError:
            found[name] = value
    return found
