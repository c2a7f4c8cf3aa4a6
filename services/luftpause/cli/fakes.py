"""Which commands start the fakes?"""

from pathlib import Path
from typing import Annotated, Literal

import typer

AnnounceOption = Annotated[Path | None, typer.Option(hidden=True, help="Write where it listens to this file, as JSON.")]


def register(app: typer.Typer) -> None:
    app.command("fake-engine")(fake_engine)
    app.command("fake-mcp")(fake_mcp)
    app.command("fake-provider")(fake_provider)


def fake_engine(
    *,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.")] = 8100,
    engines: Annotated[
        int, typer.Option(min=1, max=64, help="So many engines on this port and those after it; on one GPU: n at work are n times slower.")
    ] = 1,
    model: Annotated[str, typer.Option(help="Name of the model that it serves.")] = "fake-1b",
    flavour: Annotated[Literal["sglang", "vllm", "llamacpp"], typer.Option(help="Whose metrics, errors and habits it has.")] = "sglang",
    speed: Annotated[float, typer.Option(min=0.01, help="10: everything takes a tenth of the time.")] = 1.0,
    max_running: Annotated[
        int | None, typer.Option(min=1, help="Most requests at once; not given: as many as the KV memory holds.")
    ] = None,
    max_waiting: Annotated[int | None, typer.Option(min=0, help="Length of its queue; not given: unlimited.")] = None,
    kv_tokens: Annotated[int, typer.Option(min=64, help="Size of the KV memory.")] = 16_000,
    context: Annotated[int | None, typer.Option(min=16, help="Longest prompt and answer in tokens; not given: the KV memory.")] = None,
    chunk_tokens: Annotated[int, typer.Option(min=1, help="Tokens of one prefill step.")] = 2048,
    prefill_speed: Annotated[float, typer.Option(min=1, help="Prefill in tokens per second.")] = 20_000.0,
    decode_seconds: Annotated[float, typer.Option(min=0.0001, help="A decode step of an idle engine.")] = 0.008,
    priority: Annotated[
        Literal["off", "sglang", "vllm"],
        typer.Option(help="Heed the body's `priority`: sglang, higher goes first; vllm, lower goes first."),
    ] = "off",
    cache_report: Annotated[bool, typer.Option(help="Tell cached_tokens in usage.")] = True,
    stream_interval: Annotated[int, typer.Option(min=1, help="Send the chunks of so many tokens together, as real engines can.")] = 1,
    health_seconds: Annotated[
        float | None, typer.Option(min=0, help="How long /health takes; not given: as the flavour does (sglang: 1 s / speed).")
    ] = None,
    faults: Annotated[str, typer.Option(help="Faults from the start, as JSON; see POST /_fake.")] = "{}",
    announce: AnnounceOption = None,
) -> None:
    """Run the fake engine: a model of a batching engine behind the APIs of real ones, with scripted answers.

    It serves chat completions, completions, responses, messages, embeddings and /classify.

    How many of the offered tools it calls and how long its answer is follows from the first user message. A user message may order
    otherwise, as in [calls=2 tool=lookup answer=40 args={"query":"x"}]:

    \b
      calls=N      tool calls in the whole run (0: none)
      parallel=N   of them in one turn
      tool=a,b     call these tools in turn (names as offered, or their endings)
      args={…}     arguments of every call, as JSON
      form=F       structured; or in the text: text (<tool_call>), fenced, bare, cut
      malformed=N  the first N calls have arguments that are no JSON
      unknown=N    the first N calls name a tool that is not offered
      ids=X        every tool call has the id X; ids=count: call_0, call_1 …; ids=none
      answer=N     length of the final answer in tokens (four characters each)
      say="…"      the final answer
      finish=R     finish_reason of the final answer

    GET /_fake shows counters. POST /_fake orders faults, as in {"die_after_tokens": 3, "die_times": 1}; a wrong name is answered with all
    right ones.
    """
    import asyncio

    from luftpause.kit import logs
    from luftpause_fakes.engine import EngineOptions, serve

    logs.setup()
    options = EngineOptions(
        host=host,
        port=port,
        engines=engines,
        model=model,
        flavour=flavour,
        speed=speed,
        running_max=max_running,
        waiting_max=max_waiting,
        kv_tokens=kv_tokens,
        context_tokens=context,
        chunk_tokens=chunk_tokens,
        prefill_tokens_per_second=prefill_speed,
        decode_step_seconds=decode_seconds,
        priority=priority,
        cache_report=cache_report,
        stream_interval=stream_interval,
        health_seconds=health_seconds,
        faults=faults,
    )
    asyncio.run(serve(options, announce=announce))


def fake_mcp(
    *,
    stdio: Annotated[bool, typer.Option("--stdio", help="Speak MCP on stdin and stdout instead of HTTP.")] = False,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.")] = 7100,
    lookup_seconds: Annotated[float, typer.Option(min=0, help="How long `lookup` takes.")] = 1.0,
    deep_search_seconds: Annotated[float, typer.Option(min=0, help="How long `deep_search` takes.")] = 10.0,
    flaky_failures: Annotated[int, typer.Option(min=0, help="How often `flaky` fails before it works, per query.")] = 1,
    big_result_bytes: Annotated[int, typer.Option(min=1, help="Length of `big_result` where the call names none.")] = 3_000_000,
    page_size: Annotated[int, typer.Option(min=0, help="Tools per page of tools/list; 0: all.")] = 0,
    log: Annotated[Path | None, typer.Option(help="Append one JSON line per started, finished and cancelled call.")] = None,
    announce: AnnounceOption = None,
) -> None:
    """Run the fake MCP server: `lookup`, `deep_search`, `delete_note`, `flaky`, `big_result`, `picture`, `record`, `add`.

    Over HTTP, GET /_fake shows how often each call was started and finished; DELETE /_fake clears that.
    """
    import asyncio

    from luftpause.kit import logs
    from luftpause_fakes.mcp import McpOptions, serve_http, serve_stdio

    logs.setup()
    options = McpOptions(
        host=host,
        port=port,
        lookup_seconds=lookup_seconds,
        deep_search_seconds=deep_search_seconds,
        flaky_failures=flaky_failures,
        big_result_bytes=big_result_bytes,
        page_size=page_size,
        log=log,
    )
    asyncio.run(serve_stdio(options) if stdio else serve_http(options, announce=announce))


def fake_provider(
    *,
    family: Annotated[
        Literal["github", "copilot", "openai", "azure", "anthropic"], typer.Option(help="Whose limits, headers and refusals it has.")
    ] = "github",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.")] = 8200,
    model: Annotated[str, typer.Option(help="Name of the model that it lists.")] = "fake-model",
    quota: Annotated[
        float | None, typer.Option(min=1, help="Units of the main limit: calls an hour (github, copilot) or tokens a minute.")
    ] = None,
    per_minute: Annotated[
        int | None, typer.Option(min=0, help="Calls a minute of the limit that it does not tell (github, copilot); 0: none.")
    ] = None,
    penalty_seconds: Annotated[float | None, typer.Option(min=0.001, help="How long it refuses whoever exceeds that.")] = None,
    kind: Annotated[bool, typer.Option("--kind", help="Refused calls cost nothing and never make the penalty longer.")] = False,
    speed: Annotated[float, typer.Option(min=0.01, help="30: windows and penalties take a thirtieth of the time, and it says so.")] = 1.0,
    refusal_status: Annotated[int, typer.Option(help="403 or 429, of github and copilot; 0: as the family does.")] = 0,
    latency_seconds: Annotated[float | None, typer.Option(min=0, help="How long an answer takes on average, whatever --speed.")] = None,
    answer_tokens: Annotated[int, typer.Option(min=1, help="Length of an answer, if the call allows so much.")] = 32,
    seed: Annotated[int, typer.Option(help="Of the answers' times.")] = 0,
    announce: AnnounceOption = None,
) -> None:
    """Run the fake provider: a rate-limited API with one account, and the headers, refusals and traps of a real one.

    \b
      github     5,000 calls in a fixed hour; more than 900 in a minute are refused for 60 s, which no header announces; who goes on
                 calling pays for refusals and is refused longer: 1.6 times per 50 refused calls, up to 15 minutes. 403
      copilot    80 calls an hour; 10 a minute, 30 s that grow sixfold per 5 refused calls, up to 30 minutes
      openai     a bucket of 200,000 tokens a minute, charged with the prompt and the most that may be answered; 5,000 calls
      azure      200,000 tokens in a fixed minute; refuses streams inside a 200, and elsewhere says to come again at once
      anthropic  50 calls, 30,000 tokens in and 8,000 out a minute; of those out, what was not answered comes back

    It serves POST …/chat/completions and /v1/messages, streaming or not; as github any other path and GET /rate_limit. GET /_fake shows
    what was taken, refused and charged.
    """
    import asyncio

    from luftpause.kit import logs
    from luftpause_fakes.provider import ProviderOptions, serve

    if refusal_status not in {0, 403, 429}:
        raise typer.BadParameter(f"{refusal_status}: 403 or 429, or 0 for what the family does", param_hint="--refusal-status")
    logs.setup()
    options = ProviderOptions(
        family=family,
        host=host,
        port=port,
        model=model,
        quota=quota,
        per_minute=per_minute,
        penalty_seconds=penalty_seconds,
        kind=kind,
        speed=speed,
        refusal_status=refusal_status,
        latency_seconds=latency_seconds,
        answer_tokens=answer_tokens,
        seed=seed,
    )
    asyncio.run(serve(options, announce=announce))
