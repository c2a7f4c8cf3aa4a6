"""Do probes tell well, slow, loading, dead and lying engines apart, over real sockets?"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable

import pytest

from luftpause.kit.clock import Clock, monotonic
from luftpause.kit.config import ReplicaConfig
from luftpause.scheduler.core.events import Load, ProbeOutcome, ReplicaProbed
from luftpause.scheduler.engine_http import client
from luftpause.scheduler.formats import PATHS
from luftpause.scheduler.probe import DOUBT_SECONDS, MODELS_MAX, Limits, Probe
from luftpause.scheduler.probes import Prober
from tests.integration.scheduler.engines import VLLM, Engine, Page, after, engine, never, packed
from tests.support.ports import a_refusing_port

OK, MISSED, REFUSED = ProbeOutcome.OK, ProbeOutcome.MISSED, ProbeOutcome.REFUSED
LOAD = Load(running=4, waiting=1)
LLAMA_LOADING = b'{"error":{"message":"Loading model","type":"unavailable_error","code":503}}'


class Found:
    """What the prober posts."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[ReplicaProbed] = asyncio.Queue()

    async def next(self, seconds: float = 60) -> ReplicaProbed:
        return await asyncio.wait_for(self.events.get(), seconds)

    async def until(self, condition: Callable[[ReplicaProbed], bool], seconds: float = 60) -> ReplicaProbed:
        async with asyncio.timeout(seconds):
            while not condition(event := await self.events.get()):
                pass
        return event


@contextlib.asynccontextmanager
async def probing(
    *replicas: ReplicaConfig,
    period: float = 60,
    again: bool = False,
    bytes_max: int = 8 << 20,
    env: dict[str, str] | None = None,
    clock: Clock = monotonic,
) -> AsyncGenerator[tuple[Prober, Found]]:
    """With `again` each probe asks for the next: quick probes, but with the patience of a long period."""
    found = Found()

    def post(event: ReplicaProbed) -> None:
        found.events.put_nowait(event)
        if again:
            prober.now(event.replica)

    prober = Prober(post, period_seconds=period, bytes_max=bytes_max, clock=clock, env=env or {})
    prober.watch(replicas)
    try:
        yield prober, found
    finally:
        await prober.close()


def replica(url: str, **fields: object) -> ReplicaConfig:
    return ReplicaConfig.model_validate({"name": "a", "url": url, **fields})


async def test_a_healthy_engine_tells_its_health_load_and_models_in_one_event():
    async with engine() as vllm, probing(replica(vllm.url)) as (_, found):
        event = await found.next()
        assert (event.replica, event.outcome, event.load, event.models) == ("a", OK, LOAD, ("m",))


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
async def test_the_paths_hang_on_the_base_however_the_url_is_written(suffix: str):
    async with engine() as vllm, probing(replica(vllm.url + suffix)) as (_, found):
        assert (await found.next()).models == ("m",)
        assert set(vllm.hits) == {"/health", "/metrics", "/v1/models", *PATHS.values()}


async def test_a_path_before_v1_stays():
    async with engine() as vllm:
        vllm.pages = {"/api/health": (200, b""), "/api/metrics": (200, VLLM), "/api/v1/models": vllm.pages["/v1/models"]}
        async with probing(replica(vllm.url + "/api/v1")) as (_, found):
            event = await found.next()
            assert (event.outcome, event.load, event.models) == (OK, LOAD, ("m",))


async def test_a_closed_port_is_refused_at_once():
    async with probing(replica(f"http://127.0.0.1:{a_refusing_port()}")) as (_, found):
        assert (await found.next()).outcome is REFUSED  # whoever waits for nothing finds MISSED


async def test_a_name_with_two_addresses_is_refused_where_both_refuse():
    async with probing(replica(f"http://localhost:{a_refusing_port()}")) as (_, found):
        assert (await found.next()).outcome is REFUSED


async def test_a_name_that_nobody_knows_is_a_miss():
    async with probing(replica("http://no-such-host.invalid:1")) as (_, found):
        assert (await found.next()).outcome is MISSED


@pytest.mark.parametrize(
    ("page", "outcome"),
    [
        ((200, b"ok"), OK),
        ((204, b""), OK),
        ((503, LLAMA_LOADING), MISSED),  # llama.cpp loads its model
        ((503, b""), MISSED),  # SGLang starts
        ((500, b""), MISSED),
        ((404, b""), OK),  # Ollama has no /health: it answers, so it is alive
        ((401, b""), OK),
        ((429, b""), OK),
        ((307, b"", {"location": "http://127.0.0.1:9/"}), OK),
        (never, MISSED),
    ],
)
async def test_only_a_server_error_or_silence_is_a_miss(page: Page, outcome: ProbeOutcome):
    async with engine(health=page) as vllm, probing(replica(vllm.url), period=1 if page is never else 60) as (_, found):
        assert (await found.next()).outcome is outcome


async def test_a_redirect_is_not_followed():
    async with engine() as elsewhere, engine() as vllm:
        vllm.pages["/health"] = (307, b"", {"location": f"{elsewhere.url}/health"})
        async with probing(replica(vllm.url)) as (_, found):
            await found.next()
            assert not elsewhere.hits


async def test_a_server_that_does_not_speak_http_is_a_miss():
    def babble(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n")
        writer.close()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, probing(replica(f"http://127.0.0.1:{port}")) as (_, found):
        assert (await found.next()).outcome is MISSED


async def test_a_slow_health_check_does_not_flap_and_its_load_is_fresh():
    """SGLang generates a token for /health and polls once a second."""
    metrics = [VLLM.replace(b"4.0", str(n).encode()) for n in range(100)]

    async def next_page() -> tuple[int, bytes]:
        return 200, metrics.pop(0)

    async with engine(health=after(1.1, (200, b"ok")), metrics=next_page) as sglang, probing(replica(sglang.url), period=2) as (_, found):
        first, second = await found.next(), await found.next()
        assert (first.outcome, second.outcome) == (OK, OK)
        assert (first.load, second.load) == (Load(1, 1), Load(3, 1))  # each time the second page of the probe, asked when health was in


async def test_a_health_check_that_always_takes_longer_than_the_period_is_no_outage():
    async with engine(health=after(1.4, (200, b"ok"))) as sglang, probing(replica(sglang.url), period=1) as (_, found):
        outcomes = [(await found.next()).outcome for _ in range(4)]
        assert outcomes == [MISSED, OK, OK, OK]


async def test_a_replica_that_hangs_is_missed_three_times_in_three_periods_and_delays_no_other():
    async with engine(health=never, metrics=never, models=never) as hung, engine() as well:
        async with probing(replica(hung.url), ReplicaConfig(name="b", url=well.url), period=0.6) as (_, found):
            seen: list[ReplicaProbed] = []
            while sum(event.replica == "a" for event in seen) < 3:
                seen.append(await found.next())
        assert [event.outcome for event in seen if event.replica == "a"] == [MISSED] * 3
        others = sum(event.replica == "b" and event.outcome is OK for event in seen)
        assert 2 <= others <= 5, "both have been asked in the same periods"
        assert hung.hits["/health"] == 3


async def test_a_hanging_health_check_delays_the_load_by_one_period_at_most():
    async with engine(health=never) as vllm, probing(replica(vllm.url), period=1) as (_, found):
        first, second = await found.next(), await found.next()
        assert (first.outcome, first.load, second.outcome, second.load) == (MISSED, LOAD, MISSED, LOAD)
        assert vllm.hits["/health"] == 2


async def test_hanging_metrics_do_not_make_an_engine_unhealthy():
    async with engine(metrics=never) as vllm, probing(replica(vllm.url), period=1) as (_, found):
        event = await found.next()
        assert (event.outcome, event.load) == (OK, None)


@pytest.mark.parametrize(
    "page",
    [
        (404, b'{"detail":"Not Found"}'),
        (401, b""),
        (501, b'{"error":{"message":"This server does not support metrics endpoint."}}'),
        (200, b""),
        (200, VLLM.replace(b"4.0", b"NaN")),
        (200, VLLM.replace(b"1.0", b"+Inf")),
        (200, b"\xff\xfe\x00" * 50),
        (200, VLLM + b"x" * 100_001),
        packed(VLLM + b"x" * 100_001),
    ],
)
async def test_metrics_that_say_nothing_leave_the_load_unknown_and_the_engine_healthy(page: Page):
    async with engine(metrics=page) as vllm, probing(replica(vllm.url), bytes_max=100_000) as (_, found):
        event = await found.next()
        assert (event.outcome, event.load) == (OK, None)


async def test_metrics_come_packed_and_in_megabytes_too():
    page = b"".join(b'vllm:other{le="%d"} 1.0\n' % n for n in range(100_000)) + VLLM
    assert len(page) > 2_000_000
    for reply in ((200, page), packed(page)):
        async with engine(metrics=reply) as vllm, probing(replica(vllm.url)) as (_, found):
            assert (await found.next()).load == LOAD


async def test_an_engine_once_recognised_stays_so_and_each_change_of_its_metrics_is_logged_once(caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO", logger="luftpause")
    other = b"llamacpp:requests_processing 9\nllamacpp:requests_deferred 9\n"
    async with engine() as vllm, probing(replica(vllm.url), again=True) as (_, found):
        assert (await found.next()).load == LOAD
        vllm.pages["/metrics"] = (200, other)
        await found.until(lambda event: event.load is None)
        assert [(await found.next()).load for _ in range(3)] == [None] * 3
        vllm.pages["/metrics"] = (200, VLLM)
        await found.until(lambda event: event.load == LOAD)
    about_load = [record.getMessage() for record in caplog.records if "load" in record.getMessage()]
    assert len(about_load) == 2
    assert "num_requests_waiting are missing; it has llamacpp:requests_deferred" in about_load[0]
    assert about_load[1] == "replica's load is well again"


async def test_an_engine_that_shows_its_gauges_late_is_recognised_then():
    async with (
        engine(metrics=(200, b"python_gc_objects_collected_total 1\n")) as vllm,
        probing(replica(vllm.url), again=True) as (_, found),
    ):
        assert (await found.next()).load is None
        vllm.pages["/metrics"] = (200, VLLM)
        await found.until(lambda event: event.load == LOAD)


async def test_load_none_asks_for_no_metrics_and_configured_models_and_formats_are_not_asked_for():
    async with engine() as vllm, probing(replica(vllm.url, load="none", models=["x"], apis=["chat"])) as (_, found):
        event = await found.next()
        assert (event.outcome, event.load, event.models, event.apis) == (OK, None, None, None)
        assert set(vllm.hits) == {"/health"}


async def test_another_flavour_than_the_configured_one_is_not_taken():
    async with engine() as vllm, probing(replica(vllm.url, load="sglang")) as (_, found):
        assert (await found.next()).load is None


async def test_a_replica_without_health_check_is_healthy_while_it_can_be_reached():
    config = {"health": None, "load": "none", "models": ["x"], "apis": ["chat"]}
    async with engine() as hosted, probing(replica(hosted.url, **config), again=True) as (_, found):
        assert (await found.next()).outcome is OK
        assert not hosted.hits
        await hosted.stop()
        await found.until(lambda event: event.outcome is REFUSED)


async def test_proxies_of_the_environment_do_not_capture_engines(monkeypatch: pytest.MonkeyPatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with engine() as vllm, probing(replica(vllm.url)) as (_, found):
        assert (await found.next()).outcome is OK


async def test_the_key_comes_from_its_variable_and_goes_to_the_replica_only():
    config = {"api_key_env": "THE_KEY"}
    async with engine() as vllm, probing(replica(vllm.url, **config), env={"THE_KEY": "s3cret\n"}) as (_, found):
        await found.next()
        assert all("authorization: Bearer s3cret\r\n" in head.replace("Authorization", "authorization") for head in vllm.heads.values())
    async with engine() as vllm, probing(replica(vllm.url)) as (_, found):
        await found.next()
        assert not any("authorization" in head.lower() for head in vllm.heads.values())


@pytest.mark.parametrize("key", ["", "a\nb", "schlüssel"])
async def test_a_missing_or_unusable_key_is_named_by_its_variable_and_never_shown(key: str, caplog: pytest.LogCaptureFixture):
    async with engine() as vllm, probing(replica(vllm.url, api_key_env="THE_KEY"), env={"THE_KEY": key}) as (_, found):
        assert (await found.next()).outcome is OK
    assert caplog.records[0].fields["api_key_env"] == "THE_KEY"
    assert not key or key not in caplog.text


async def test_models_are_asked_again_when_the_replica_comes_back():
    async with engine() as vllm, probing(replica(vllm.url), again=True) as (_, found):
        assert (await found.next()).models == ("m",)
        assert (await found.next()).models is None
        vllm.pages |= {"/health": (503, b""), "/v1/models": (503, b"")}
        await found.until(lambda event: event.outcome is MISSED)
        vllm.pages["/health"] = (200, b"")
        assert (await found.until(lambda event: event.outcome is OK)).models is None  # its models come a little later
        vllm.pages["/v1/models"] = (200, b'{"data":[{"id":"n"},{"id":"n"},{"id":""}]}')
        assert (await found.until(lambda event: event.models is not None)).models == ("n",)


@pytest.mark.parametrize("page", [(404, b""), (200, b"not json"), (200, b'{"data":[{"name":"x"}]}'), (200, b"[]")])
async def test_models_that_can_not_be_read_are_asked_again_and_complained_of_once(page: Page, caplog: pytest.LogCaptureFixture):
    async with engine(models=page) as vllm, probing(replica(vllm.url), again=True) as (_, found):
        assert [(await found.next()).models for _ in range(4)] == [None] * 4
        assert vllm.hits["/v1/models"] >= 4
        assert sum("/v1/models" in record.getMessage() for record in caplog.records) == 1
        vllm.pages["/v1/models"] = (200, b'{"data":[{"id":"m"}]}')
        assert (await found.until(lambda event: event.models is not None)).models == ("m",)


@pytest.mark.parametrize(
    ("page", "models"),
    [
        (b'[{"id":"m"},{"id":"n"}]', ("m", "n")),
        (b'\xef\xbb\xbf{"data":[{"id":"m"}]}', ("m",)),
        (b'{"data":[{"id":"m"},{"id":null},{"name":"x"},{"id":5},{"id":"n","parent":"m"}]}', ("m", "n")),
        (b'{"data":[]}', ()),
    ],
)
async def test_lists_of_models_in_the_forms_that_servers_give_them(page: bytes, models: tuple[str, ...]):
    async with engine(models=(200, page)) as vllm, probing(replica(vllm.url)) as (_, found):
        assert (await found.next()).models == models


async def test_models_in_doubt_are_asked_at_once_but_not_in_a_storm():
    now = [1000.0]
    async with engine() as vllm, probing(replica(vllm.url), clock=lambda: now[0]) as (prober, found):
        assert (await found.next()).models == ("m",)
        vllm.pages["/v1/models"] = (200, b'{"data":[{"id":"m"},{"id":"adapter"}]}')
        prober.doubt("a")  # it was only just asked
        now[0] += DOUBT_SECONDS
        prober.doubt("other")
        prober.doubt("a")
        prober.doubt("a")
        assert (await found.next()).models == ("m", "adapter")
        prober.doubt()
        prober.now("a")
        assert (await found.next()).models is None
        assert vllm.hits["/v1/models"] == 2


async def test_models_that_cannot_be_read_are_doubted_no_more_often() -> None:
    now = [1000.0]
    async with engine(models=(404, b"{}")) as vllm, client() as http:
        probe = Probe(replica(vllm.url), http, Limits(60, 8 << 20), lambda: now[0])
        assert (await probe.once()).models is None
        found: list[bool] = []
        for seconds in (0.0, 0.0, DOUBT_SECONDS / 2, DOUBT_SECONDS / 2):
            now[0] += seconds
            probe.wanted.clear()
            probe.doubt()
            found.append(probe.wanted.is_set())
            await probe.once()
        await probe.close()
    assert found == [True, False, False, True]


async def test_no_replica_serves_more_models_than_a_page_can_show():
    many = b'{"data":[' + b",".join(b'{"id":"%d"}' % n for n in range(MODELS_MAX + 5)) + b"]}"
    async with engine(models=(200, many)) as vllm, probing(replica(vllm.url)) as (_, found):
        models = (await found.next()).models
        assert models is not None
        assert len(models) == MODELS_MAX


async def test_a_probe_that_is_wanted_comes_at_once_also_while_one_is_under_way():
    asked, gate = asyncio.Event(), asyncio.Event()

    async def page() -> tuple[int, bytes]:
        asked.set()
        await gate.wait()
        return 200, b"ok"

    async with engine(health=page) as vllm, probing(replica(vllm.url), period=60) as (prober, found):
        await asyncio.wait_for(asked.wait(), 60)
        prober.now("a")
        gate.set()
        await found.next()
        second = await found.next()
        assert second.outcome is OK
        prober.now("a")
        await found.next()
        prober.now("unknown")
        with pytest.raises(TimeoutError):
            await found.next(seconds=0.3)


async def test_suspicion_in_a_storm_does_not_become_a_storm_of_probes():
    async with engine() as vllm, probing(replica(vllm.url), period=60) as (prober, found):
        started = time.monotonic()
        for _ in range(5):
            await found.next()
            for _ in range(100):
                prober.now("a")
        assert time.monotonic() - started > 0.3  # four gaps of 0.1 s


async def test_a_replica_that_stays_as_it_was_keeps_its_loop_and_a_removed_one_is_left_alone():
    async with engine() as one, engine() as two:
        first, second = replica(one.url), ReplicaConfig(name="b", url=two.url)
        async with probing(first, second) as (prober, found):
            assert {(await found.next()).replica, (await found.next()).replica} == {"a", "b"}
            prober.watch([first])
            prober.now("b")
            prober.now("a")
            assert (await found.next()).replica == "a"
            assert two.hits["/health"] == 1
            moved = replica(two.url)
            prober.watch([moved])
            assert (await found.next()).models == ("m",)
            assert two.hits["/health"] == 2


async def test_an_engine_that_restarts_is_found_again_on_its_port():
    vllm = Engine()
    await vllm.start()
    port = int(vllm.url.rpartition(":")[2])
    async with probing(replica(vllm.url), again=True) as (_, found):
        assert (await found.next()).outcome is OK
        await vllm.stop()
        await found.until(lambda event: event.outcome is REFUSED)
        await vllm.start(port)
        try:
            assert (await found.until(lambda event: event.outcome is OK)).load == LOAD
        finally:
            await vllm.stop()
