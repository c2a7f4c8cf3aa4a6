"""Does `luftpause replay` tell whether decisions are as recorded, and what other rules would have changed?"""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from luftpause.cli.app import app
from luftpause.cli.replay_fit import fit
from luftpause.cli.replay_report import outcome
from luftpause.cli.replay_turns import Turn, Workload, workload
from luftpause.cli.replay_world import World, recorded
from luftpause.kit.errors import LuftpauseError
from luftpause.scheduler.core.decide import decide, initial
from luftpause.scheduler.core.events import (
    Event,
    FirstToken,
    Load,
    ProbeOutcome,
    ReplicaProbed,
    ReplicaSpec,
    Resync,
    Tick,
    TurnAbandoned,
    TurnClass,
    TurnFinished,
    TurnRequested,
    Usage,
)  # fmt: skip
from luftpause.scheduler.core.settings import Settings
from luftpause.scheduler.record_log import VERSION, Header, event_line, header_line
from luftpause.scheduler.replay import Log
from luftpause_fakes.engine_model import EngineParams, Segment

RECORDINGS = Path(__file__).parents[2] / "recordings"
SETTINGS = Settings(start_grace_seconds=0.0)
SPECS = (ReplicaSpec("a", "http://a", ("m",)), ReplicaSpec("b", "http://b", ("m",)))


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["replay", *arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def lines_of(events: list[Event], *, version: str = "0.1.0", settings: Settings = SETTINGS) -> list[bytes]:
    state = initial(settings, SPECS, 0.0)
    lines = [header_line(Header(VERSION, version, "original", "seed", "2026-01-01T00:00:00", 0.0, settings, SPECS, hashed=False), None)]
    for event in events:
        step = decide(state, event)
        lines.append(event_line(event, step.decisions))
        state = step.state
    return lines


def up(load: Load | None = None) -> list[Event]:
    return [Resync(0.0, "d", "s", "b"), *(ReplicaProbed(0.0, name, ProbeOutcome.OK, load or Load(0, 0, 16_000)) for name in "ab")]


def turn(at: float, name: str, run: str, *, seconds: float = 1.0, usage: Usage | None = None, **more: object) -> list[Event]:
    return [
        TurnRequested(at, "d", name, 1, run, "m", run=run, arrived=at, **more),
        FirstToken(at + 0.1, "d", name),
        TurnFinished(at + seconds, "d", name, 1, "tool_calls", usage, paused=True),
    ]


def found(events: list[Event]) -> Workload:
    log = Log(lines_of(sorted(events, key=lambda event: event.now)))
    return workload(log.header, log)


# ---- the check ----------------------------------------------------------------------------------------------------


def test_a_log_whose_decisions_come_out_again_is_status_0() -> None:
    status, out, err = run(str(RECORDINGS / "session_after.jsonl"))
    assert (status, err) == (0, "")
    assert "every decision is as recorded" in out
    assert "names hashed" in out


def test_a_log_whose_decisions_differ_is_status_1_and_shows_the_first_difference_and_what_came_before(tmp_path: Path) -> None:
    lines = lines_of([*up(), *turn(1.0, "t1", "r1"), *turn(3.0, "t2", "r1")])
    at = next(number for number, line in enumerate(lines) if b'"t2"' in line)
    lines[at] = lines[at].replace(b'"replica":"a"', b'"replica":"b"')
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"".join(lines))
    status, out, err = run(str(path))
    assert status == 1
    assert "1 events lead to other decisions" in out
    assert f"  > {at}  " in err
    assert f"    {at - 1}  " in err
    assert '- {"Place":{"dataplane":"d","turn":"t2","attempt":1,"run":"r1","replica":"b"' in err
    assert '+ {"Place":{"dataplane":"d","turn":"t2","attempt":1,"run":"r1","replica":"a"' in err
    status, out, _ = run(str(path), "--json")
    document = json.loads(out)
    assert (status, document["ok"], document["different"]) == (1, False, 1)
    assert document["differences"][0]["event"] == at


def test_of_an_older_log_all_differences_are_listed(tmp_path: Path) -> None:
    lines = lines_of([*up(), *turn(1.0, "t1", "r1"), *turn(3.0, "t2", "r2")], version="0.0.9")
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"".join(line.replace(b'"replica":"a","turn_seq"', b'"replica":"b","turn_seq"') for line in lines))
    status, _, err = run(str(path))
    assert status == 1
    assert "recorded by luftpause 0.0.9" in err
    assert err.count("  > ") == 2


def test_a_torn_last_line_is_told(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"".join(lines_of([*up(), *turn(1.0, "t1", "r1")]))[:-5])
    status, out, _ = run(str(path))
    assert status == 0
    assert "its last line is torn" in out
    assert "5 events" in out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "its first line is not that of a recorded log"),
        (b"hello\n", r"log\.jsonl: its first line is not that of a recorded log"),
        (b'{"record":99}\n', "has version 99, this luftpause reads up to 1"),
        (b"".join(lines_of(up())) + b'{"event":"Odd","now":1.0}\n', r"event 4 \(line 5\) can't be read: .*Odd"),
        (lines_of([])[0].replace(b'"policy":"original"', b'"policy":"later"'), "start state can't be read: unknown policy 'later'"),
    ],
)
def test_what_is_no_log_is_told(tmp_path: Path, text: bytes, message: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(text)
    with pytest.raises(LuftpauseError, match=message):
        run(str(path))


def test_an_event_on_which_the_core_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(state: object, event: object) -> None:
        raise KeyError("lost")

    monkeypatch.setattr("luftpause.scheduler.replay.decide", failing)
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"".join(lines_of(up())))
    with pytest.raises(LuftpauseError, match=r"the core failed on event 1 \(KeyError: 'lost'\): .*Resync"):
        run(str(path))


def test_a_directory_names_its_logs_and_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(LuftpauseError, match=r"is a directory; name one log in it: closed_loop\.jsonl, "):
        run(str(RECORDINGS))
    with pytest.raises(LuftpauseError, match=r"can't read .*none\.jsonl: No such file"):
        run(str(tmp_path / "none.jsonl"))


# ---- what the log tells of its turns ---------------------------------------------------------------------------------


def test_a_turn_follows_the_newest_answer_of_its_run_and_continues_its_conversation() -> None:
    events = [
        *up(),
        *turn(1.0, "t1", "r", usage=Usage(100, 10, 0)),
        *turn(3.0, "t2", "r", usage=Usage(150, 10, 110)),
        *turn(6.0, "t3", "r", usage=Usage(155, 10, 0)),
        *turn(9.0, "t4", "r", usage=Usage(50, 10, 0)),
        *turn(1.5, "other", "q", usage=Usage(70, 10, 0)),
    ]
    turns = {turn.id: turn for turn in found(events).turns}
    first, second, third, fourth = (turns[f"t{number}"] for number in range(1, 5))
    assert [(turn.after and turn.after.id, turn.tool_seconds) for turn in (first, second, third, fourth)] == [
        (None, 0.0), ("t1", 1.0), ("t2", 2.0), ("t3", 2.0)
    ]  # fmt: skip
    assert second.prompt[:2] == (*first.prompt, *first.answer)
    assert third.prompt[:-1] == second.prompt  # its reasoning was not sent back
    assert not set(fourth.prompt) & set(third.prompt)
    assert turns["other"].after is None
    assert [sum(segment.tokens for segment in turn.prompt) for turn in (first, second, third, fourth)] == [100, 150, 155, 50]


def test_a_head_that_most_first_prompts_found_cached_is_shared() -> None:
    events = [*up(), *[event for n in range(4) for event in turn(1.0 + n, f"t{n}", f"r{n}", usage=Usage(100 + n, 10, 40 if n else 0))]]
    turns = found(events).turns
    assert len({turn.prompt[0].key for turn in turns}) == 1
    assert turns[0].prompt[0].tokens == 40


def test_missing_usage_is_guessed_and_counted_and_turns_without_answer_are_left_out() -> None:
    events: list[Event] = [
        *up(),
        *turn(1.0, "t1", "r", usage=Usage(100, 30)),
        *turn(3.0, "t2", "r", body_bytes=800),
        *turn(5.0, "t3", "r", usage=Usage(300, 30))[:2],
        *turn(6.0, "t4", "q", usage=Usage(300, 30))[:2],
        TurnAbandoned(7.0, "d", "t4", 1),
    ]
    work = found(events)
    assert [(turn.id, turn.guessed, turn.prompt_tokens, turn.completion_tokens) for turn in work.turns] == [
        ("t1", False, 100, 30), ("t2", True, 200, 30)
    ]  # fmt: skip
    assert work.guessed == 1
    assert dict(work.left_out) == {"unfinished": 1, "abandoned": 1}


# ---- engines and simulation ------------------------------------------------------------------------------------------


def test_speeds_are_fitted_from_what_a_known_engine_did() -> None:
    """A log made by the model itself gives its figures back."""
    true = EngineParams(5_000.0, decode_step_seconds=0.02, decode_sequence_seconds=0.002, decode_kv_token_seconds=0.0)
    work = Workload(SPECS, models={}, loads={})
    for number in range(60):
        prompt = 200 + 37 * (number % 13)
        each = Turn(f"t{number}", f"r{number}", "m", TurnClass.BATCH, "c", "", "chat", b"", 0, 1.0 + 0.9 * number)
        each.prompt_tokens, each.completion_tokens, each.cached_tokens = prompt, 40 + number % 7, 0
        each.prompt, each.answer = (Segment(2 * number, prompt),), (Segment(2 * number + 1, each.completion_tokens),)
        each.finished = each.arrived + 1.0
        work.turns.append(each)
    work.models = dict.fromkeys("ab", ("m",))
    for each, fared in zip(work.turns, World(work, SETTINGS, true).play(), strict=True):
        assert fared.placed is not None
        assert fared.finished is not None
        each.placed, each.first, each.finished, each.replica = fared.placed, fared.first, fared.finished, fared.replica
    fitted = fit(work, {})
    assert fitted.params.decode_step_seconds == pytest.approx(0.022, rel=0.15)
    assert fitted.params.prefill_tokens_per_second == pytest.approx(5_000, rel=0.15)
    assert fitted.sources["decode_step_seconds"] == "log"
    assert fit(work, {"kv_tokens": 5_000}).params.kv_tokens == 5_000
    assert fit(work, {"kv_tokens": 5_000}).sources["kv_tokens"] == "flag"


def test_without_anything_to_fit_the_defaults_say_so() -> None:
    fitted = fit(found([*up(Load(0, 0)), *turn(1.0, "t1", "r1")]), {})
    assert fitted.params.decode_step_seconds == EngineParams().decode_step_seconds
    assert fitted.sources["decode_step_seconds"] == fitted.sources["prefill_tokens_per_second"] == "default"
    assert fitted.sources["kv_tokens"].startswith("guessed")


@pytest.mark.parametrize(
    ("loads", "size"),
    [
        ([Load(1, 2), Load(6, 0)], None),  # the two came between two steps of an engine with room
        ([Load(4, 3), Load(3, 0)], 4),
        ([Load(6, 0)], None),
        ([Load(0, 2)], None),
        ([Load(1, 0, slots=4), Load(2, 1)], 4),
    ],
)
def test_an_engine_is_full_only_where_it_never_ran_more_than_while_turns_waited(loads: list[Load], size: int | None) -> None:
    probes = [ReplicaProbed(2.0 + number, "a", ProbeOutcome.OK, load) for number, load in enumerate(loads)]
    fitted = fit(found([*up(Load(0, 0)), *probes, *turn(9.0, "t1", "r1")]), {})
    assert fitted.params.running_max == size
    assert fitted.sources["running_max"] == ("log" if size else "default")


def crowded(load: Load = Load(0, 0, 16_000)) -> Workload:  # noqa: B008
    """Eight runs of three turns each that come at once for two engines which take two at a time."""
    events: list[Event] = up(load)
    for run in range(8):
        for number in range(3):
            usage = Usage(1_000 + 600 * number, 100, 0 if number == 0 else 900 + 600 * number)
            events += turn(1.0 + run / 10 + 3.0 * number, f"t{run}-{number}", f"r{run}", usage=usage)
        events.append(Tick(9.9))
    return found(events)


def test_every_turn_is_answered_after_the_one_it_followed_and_its_tool_time() -> None:
    work = crowded()
    fared = {each.turn.id: each for each in World(work, SETTINGS, EngineParams(running_max=2)).play()}
    assert len(fared) == 24
    for each in fared.values():
        assert each.placed is not None
        assert each.first is not None
        assert each.finished is not None
        assert each.arrived <= each.placed <= each.first <= each.finished
        if each.turn.after is not None:
            assert each.arrived == pytest.approx((fared[each.turn.after.id].finished or 0) + each.turn.tool_seconds)


def test_strictly_sticky_runs_never_move_and_the_same_simulation_gives_the_same() -> None:
    work, params = crowded(), EngineParams(running_max=2)
    one, two = (outcome(World(work, SETTINGS, params).play()) for _ in range(2))
    assert one == two
    assert sum(run.moves for run in one.runs.values()) == 0
    assert all(run.run_s for run in one.runs.values())


@pytest.mark.parametrize(("load", "slots", "kv"), [(Load(0, 0, slots=2), 2, False), (Load(0, 0, 16_000), 0, True)])
def test_engines_tell_slots_where_they_told_them_and_their_memory_where_not(load: Load, slots: int, kv: bool) -> None:
    world = World(crowded(load), Settings(policy="guard", start_grace_seconds=0.0), EngineParams(running_max=2))
    assert all(each.finished is not None for each in world.play())
    assert [(each.slots, each.kv > 0) for each in world.state.policy_state.engines.values()] == [(slots, kv)] * 2


def test_rules_that_refuse_show_as_refused_and_the_run_goes_on() -> None:
    strict = Settings(start_grace_seconds=0.0, held_turns_max=1)
    all_ = [each.turn_class for each in crowded().turns]
    found_ = outcome(World(crowded(), strict, EngineParams(running_max=1, decode_step_seconds=0.05)).play())
    (totals,) = found_.classes.values()
    assert totals.refused > 0
    assert totals.answered + totals.refused == totals.turns == len(all_)


def test_what_was_recorded_is_told_as_it_was() -> None:
    (totals,) = outcome(recorded(crowded().turns)).classes.values()
    assert (totals.turns, totals.answered, totals.runs, totals.moves) == (24, 24, 8, 0)
    assert totals.first_token_s is not None
    assert totals.first_token_s.p50 == pytest.approx(0.1)
    assert totals.run_median_s == pytest.approx(7.0)


def test_the_command_compares_recorded_simulated_and_changed() -> None:
    status, out, _ = run(str(RECORDINGS / "session_after.jsonl"), "--set", "stickiness=off", "--runs", "3")
    assert status == 0
    for name in ("interactive", "batch"):
        table = out.split(f"\n{name} ")[1].splitlines()[1:4]
        assert [line.split("   ")[0].strip() for line in table] == ["recorded", "simulated, as recorded", "simulated, stickiness=off"]
    assert "tokens of all turns are from the log" in out
    status, out, _ = run(str(RECORDINGS / "session_after.jsonl"), "--policy", "original", "--json")
    document = json.loads(out)
    assert status == 0
    assert document["simulated"] == document["simulated_as_recorded"]
    assert document["turns"] == sum(each["turns"] for each in document["recorded"]["classes"].values())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--policy", "none"), "--policy none: unknown; known: guard, original"),
        (("--set", "stickyness=off"), r"--set stickyness=off: did you mean stickiness\?"),
        (("--set", "zzz=1"), "--set zzz=1: give KEY=VALUE with one of policy, .*stickiness"),
        (("--set", "stickiness"), "--set stickiness: give KEY=VALUE"),
        (("--set", "stickiness=maybe"), "--set stickiness=maybe: Invalid enum value 'maybe' - at .*; write (off or strict|strict or off)"),
        (("--set", "probe_seconds=soon"), "Expected `float`, got `str`"),
        (("--policy", "original", "--engine", "kv_tokens=-1"), "--engine kv_tokens=-1: must be a number above 0"),
        (("--policy", "original", "--engine", "speed=1"), "--engine speed=1: give KEY=VALUE with one of prefill_tokens_per_second"),
    ],
)
def test_options_that_name_nothing_known_are_told(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(LuftpauseError, match=message):
        run(str(RECORDINGS / "session_after.jsonl"), *arguments)


def test_a_log_without_answered_turns_can_not_be_simulated(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"".join(lines_of(up())))
    with pytest.raises(LuftpauseError, match="has no answered turns to simulate"):
        run(str(path), "--policy", "original")
