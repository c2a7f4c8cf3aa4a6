"""What can `luftpause loadgen` be told?"""

import asyncio
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from luftpause.cli.choices import TurnClass

if TYPE_CHECKING:
    from luftpause.cli.load_agents import Crowd

DURATION_SECONDS: Final = 30.0
AGENTS_MAX: Final = 5_000
RATE_MAX: Final = 10_000.0
CHARS_MAX: Final = 10_000_000
CLASSES: Final = tuple(each.value for each in TurnClass)
# In the sign of each engine, as luftpause itself sends the class where a replica has `priority`.
PRIORITIES: Final[Mapping[str, dict[str, int]]] = {
    "sglang": {"interactive": 0, "batch": -1},
    "vllm": {"interactive": 0, "batch": 1},
}


def register(app: typer.Typer) -> None:
    app.command("loadgen")(loadgen)


def loadgen(
    *,
    spawn: Annotated[int | None, typer.Option(min=1, max=10_000, help="Fan this many sub-agents out over MCP.")] = None,
    agents: Annotated[int | None, typer.Option(min=1, max=AGENTS_MAX, help="Run this many agents with their own loop instead.")] = None,
    mix: Annotated[str | None, typer.Option(metavar="CLASS=N,…", help="Agents of both classes, as in batch=48,interactive=4.")] = None,
    rate: Annotated[
        str | None,
        typer.Option(metavar="R", help="Open loop: runs begun per second, whatever becomes of them; or by class, as in batch=1.5."),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(help="Runs of a trace (JSONL, or CSV as TraceLab's), as they arrive; with --agents, --mix or --rate as these say."),
    ] = None,
    decide: Annotated[int | None, typer.Option(min=1, max=1_000, help="Clients that ask a classifier, one question after another.")] = None,
    duration_s: Annotated[
        float | None, typer.Option("--duration-s", min=0.1, max=86_400, help="How long; 30 if not given, a trace to its end.")
    ] = None,
    warm_up_s: Annotated[float, typer.Option("--warm-up-s", min=0, max=86_400, help="What ends in this time does not count.")] = 0,
    seconds_max: Annotated[float, typer.Option(min=1, max=86_400, help="How long spawned sub-agents may take.")] = 600,
    turn_class: Annotated[TurnClass, typer.Option("--class", help="Class of turns, where nothing else does.")] = TurnClass.INTERACTIVE,
    caller: Annotated[str, typer.Option(help="Who sends, for fairness.")] = "loadgen",
    callers: Annotated[int, typer.Option(min=1, max=AGENTS_MAX, help="Share the agents out among so many: CALLER-0, CALLER-1 …")] = 1,
    mcp: Annotated[str, typer.Option(help="MCP server of the runtime, for --spawn.")] = "http://127.0.0.1:7000/mcp",
    base_url: Annotated[
        str, typer.Option(help="Any OpenAI-compatible endpoint: luftpause, a router, an engine.")
    ] = "http://127.0.0.1:8080/v1",
    model: Annotated[str | None, typer.Option(help="Model to ask; by default the only one that is served.")] = None,
    decide_url: Annotated[
        str | None, typer.Option(help="Where --decide asks; BASE_URL/decide if not given; engines have /classify.")
    ] = None,
    decide_model: Annotated[str | None, typer.Option(help="Classifier to ask; by default the only one that is served.")] = None,
    context_chars: Annotated[str, typer.Option(metavar="N|N-M", help="Length of an own-loop agent's task.")] = "2000",
    tool_seconds: Annotated[float, typer.Option(min=0, max=3_600, help="How long an own-loop agent's tool call takes.")] = 1.0,
    tool_calls: Annotated[int, typer.Option(min=0, max=1_000, help="Most tool calls of a run.")] = 3,
    max_tokens: Annotated[int, typer.Option(min=0, max=100_000, help="Longest answer of a turn; 0 leaves it to the engine.")] = 256,
    speed: Annotated[float, typer.Option(min=0.01, max=1_000, help="10: tool calls and arrivals take a tenth of the time.")] = 1.0,
    run_ids: Annotated[bool, typer.Option(help="Whether own-loop agents send an id of their run.")] = True,
    run_header: Annotated[str, typer.Option(help="In which header: routers of others have other names.")] = "x-luftpause-run-id",
    run_field: Annotated[str, typer.Option(metavar="A.B.C", help="Where in the body the run's id stands as well.")] = "",
    run_end: Annotated[str, typer.Option(metavar="URL", help="Post there when a run is over, with its id for {run}.")] = "",
    engine_priority: Annotated[
        Literal["sglang", "vllm"] | None,
        typer.Option(help="Send the class as the body's `priority` in the sign of this engine: what engines do by themselves."),
    ] = None,
    chars_per_token: Annotated[float, typer.Option(min=0.5, max=20, help="Of a trace's texts.")] = 4.0,
    seed: Annotated[int | None, typer.Option(min=0, help="Of tasks and arrivals; any if not given.")] = None,
    trace_out: Annotated[Path | None, typer.Option(help="Write what every run did as a trace: .csv as TraceLab's, else JSONL.")] = None,
    token_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="Variable with the token to show; LUFTPAUSE_TOKEN, on this machine, by default.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, and nothing else there.")] = False,
) -> None:
    """Put load on the stack: sub-agents over MCP (--spawn), or agents with their own loop through the proxy, a router or an engine.

    The agents of --agents and --mix begin a run as soon as their last one has ended (closed loop); runs of --rate begin at random moments.
    A trace is replayed with prompts and answers of its lengths (`min_tokens`, for engines that heed it) and its pauses.
    Ctrl-C ends it with what was measured so far; sub-agents are cancelled.
    Exit status 0: runs completed and none failed; 1 otherwise; 2: it could not start; 130: interrupted.
    """
    from luftpause.cli import loadgen as load
    from luftpause.cli.load_agents import Load
    from luftpause.cli.load_decide import Deciding
    from luftpause.cli.load_run import Shape
    from luftpause.cli.load_show import show
    from luftpause.cli.load_trace import read
    from luftpause.cli.tokens import token_for

    own = any(value is not None for value in (agents, mix, rate, trace, decide))
    if (spawn is None) is not own:
        raise typer.BadParameter("give --spawn N or --agents N; or, for own-loop agents, any of --mix, --rate, --trace and --decide")
    if spawn is not None:
        arguments: dict[str, object] = {
            "serviceClass": turn_class.value, "model": model, "maxToolCalls": tool_calls, "maxTokens": max_tokens,
        }  # fmt: skip
        token = token_for(mcp, token_env)
        found = asyncio.run(load.spawned(mcp, spawn, caller=caller, seconds_max=seconds_max, arguments=arguments, token=token))
        raise typer.Exit(show(found, as_json=as_json))
    crowds = crowds_of(agents, mix, rate, turn_class.value)
    seconds = duration_s if duration_s is not None or (trace and not crowds) else DURATION_SECONDS
    if seconds is not None and warm_up_s >= seconds:
        raise typer.BadParameter(f"--warm-up-s {warm_up_s:g} leaves nothing of the {seconds:g} seconds; raise --duration-s")
    wanted = Load(
        base_url=base_url,
        model=model or "",
        crowds=crowds,
        seconds=seconds,
        caller=caller,
        callers=callers,
        turn_class=turn_class.value,
        shape=Shape(range_of("--context-chars", context_chars, CHARS_MAX), tool_seconds, tool_calls, max_tokens),
        plans=read(trace) if trace else (),
        speed=speed,
        run_header=run_header if run_ids else "",
        run_field=run_field,
        run_end=run_end,
        bodies={name: {"priority": value} for name, value in PRIORITIES[engine_priority].items()} if engine_priority else {},
        characters_per_token=chars_per_token,
        seed=seed,
        token=token_for(base_url, token_env),
        deciding=Deciding(decide or 0, decide_url or base_url.rstrip("/") + "/decide", decide_model or ""),
    )
    raise typer.Exit(show(asyncio.run(load.own_loop(wanted, warm_up_s=warm_up_s, trace_out=trace_out)), as_json=as_json))


def crowds_of(agents: int | None, mix: str | None, rate: str | None, turn_class: str) -> "tuple[Crowd, ...]":
    """Raises BadParameter."""
    from luftpause.cli.load_agents import Crowd

    if agents is not None and mix is not None:
        raise typer.BadParameter("give either --agents or --mix")
    closed: dict[str, float] = {turn_class: agents} if agents is not None else _by_class("--mix", mix, AGENTS_MAX) if mix else {}
    for name, number in closed.items():
        if number != int(number):
            raise typer.BadParameter(f"--mix: {number:g} {name} agents are no whole number")
    arriving = {} if rate is None else _by_class("--rate", rate if "=" in rate else f"{turn_class}={rate}", RATE_MAX)
    return (
        *(Crowd(name, agents=int(number)) for name, number in closed.items()),
        *(Crowd(name, rate=number) for name, number in arriving.items()),
    )


def _by_class(option: str, text: str, most: float) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in text.split(","):
        name, equals, number = (each.strip() for each in part.partition("="))
        if not equals or name not in CLASSES or name in found:
            raise typer.BadParameter(f"{option}: {part!r} is not CLASS=NUMBER; the classes are {' and '.join(CLASSES)}, each once")
        found[name] = _number(option, number, most)
    return found


def range_of(option: str, text: str, most: int) -> tuple[int, int]:
    """`800` or `800-2000`. Raises BadParameter."""
    low, dash, high = text.partition("-")
    numbers = [part.strip() for part in ((low, high) if dash else (low, low))]
    if not all(each.isdecimal() for each in numbers):
        raise typer.BadParameter(f"{option}: {text!r} is neither a number nor two with a - between them")
    first, last = (int(each) for each in numbers)
    if first > last or last > most:
        raise typer.BadParameter(f"{option}: {text!r} must rise, and end at {most} at most")
    return first, last


def _number(option: str, text: str, most: float) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number <= most:
        raise typer.BadParameter(f"{option}: {text!r} must be a number above 0, at most {most:g}")
    return number
