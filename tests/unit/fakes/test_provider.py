"""Does the fake provider answer and refuse as the providers that it stands for, to their own clients?"""

from collections.abc import Callable

import anthropic
import httpx
import httpx2
import openai
import pytest

from luftpause_fakes.provider import Provider, ProviderOptions

QUICK = {"latency_seconds": 0.0, "refusal_seconds": 0.0}
CHAT = {"model": "m", "messages": [{"role": "user", "content": "four"}], "max_tokens": 5}


def provider(family: str, **options: object) -> Provider:
    return Provider(ProviderOptions(family=family, **QUICK | options), clock=lambda: 0.0)


def http(app: Provider) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://fake")


def sdk(app: Provider) -> openai.AsyncOpenAI:
    transport = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app))
    return openai.AsyncOpenAI(api_key="k", base_url="http://fake/v1", http_client=transport, max_retries=0)


async def test_github_takes_its_quota_then_says_when_there_is_more() -> None:
    app = provider("github", quota=2, per_minute=0)
    async with http(app) as client:
        first, second, third = [await client.get("/repos/a/b/issues") for _ in range(3)]
        told = (await client.get("/rate_limit")).json()["rate"]
    assert (first.status_code, first.headers["x-ratelimit-remaining"], first.headers["x-ratelimit-used"]) == (200, "1", "1")
    assert (second.status_code, third.status_code) == (200, 403)
    assert third.headers["x-ratelimit-remaining"] == "0"
    assert "retry-after" not in third.headers
    assert "API rate limit exceeded" in third.json()["message"]
    assert (told["used"], told["remaining"]) == (2, 0)
    assert app.shown()["refused"] == {"primary": 1}


async def test_github_refuses_who_is_too_fast_and_charges_for_it() -> None:
    app = provider("github", quota=100, per_minute=3, refusal_status=429)
    async with http(app) as client:
        answers = [await client.get("/user") for _ in range(5)]
        shown = (await client.get("/_fake")).json()
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]
    assert int(answers[3].headers["retry-after"]) == 60
    assert "secondary rate limit" in answers[3].json()["message"]
    assert shown == {
        "taken": 3,
        "refused": {"secondary": 2},
        "charged": {"core": 3.0},
        "remaining": {"core": 95.0},
        "inFlight": 1,
        "inFlightAtFirstRefusal": 1,
    }


async def test_a_kind_one_charges_nothing_for_refusals_and_its_penalty_stays() -> None:
    app = provider("github", quota=100, per_minute=3, kind=True)
    async with http(app) as client:
        answers = [await client.get("/user") for _ in range(200)]
    assert {answer.headers["retry-after"] for answer in answers[3:]} == {"60"}
    assert app.shown()["remaining"] == {"core": 97.0}


async def test_speed_makes_windows_shorter_and_is_told() -> None:
    now = [0.0]
    app = Provider(ProviderOptions(family="github", quota=1, speed=30, **QUICK), clock=lambda: now[0], epoch=lambda: 1e9 + now[0])
    async with http(app) as client:
        first = await client.get("/user")
        refused = await client.get("/user")
        now[0] = 120.001
        again = await client.get("/user")
    assert [first.status_code, refused.status_code, again.status_code] == [200, 403, 200]
    assert refused.headers["x-ratelimit-reset"] == str(10**9 + 120)


async def test_openai_charges_a_bucket_by_the_most_that_may_be_answered() -> None:
    app = provider("openai", quota=100)
    async with sdk(app) as client:
        answered = await client.chat.completions.create(model="m", messages=CHAT["messages"], max_tokens=69)
        with pytest.raises(openai.RateLimitError) as caught:
            await client.chat.completions.create(model="m", messages=CHAT["messages"], max_tokens=69)
        with pytest.raises(openai.RateLimitError, match="Request too large"):
            await client.chat.completions.create(model="m", messages=CHAT["messages"], max_tokens=100)
    assert answered.usage is not None
    assert (answered.usage.prompt_tokens, answered.usage.completion_tokens) == (1, 32)
    headers = caught.value.response.headers
    assert headers["retry-after-ms"] == "24000"
    assert headers["x-ratelimit-limit-tokens"] == "100"
    assert app.shown()["charged"] == {"requests": 1, "tokens": 70}


async def test_streams_come_in_parts_and_tell_their_usage() -> None:
    app = provider("openai")
    async with sdk(app) as client:
        stream = await client.chat.completions.create(
            model="m", messages=CHAT["messages"], max_tokens=5, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text.split() == ["w00", "w01", "w02", "w03", "w04"]
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 5


async def test_azure_refuses_a_stream_inside_a_200_and_elsewhere_hints_wrongly() -> None:
    app = provider("azure", quota=10)
    async with http(app) as client:
        assert (await client.post("/openai/deployments/d/chat/completions", json=CHAT)).status_code == 200
        refused = await client.post("/openai/deployments/d/chat/completions", json=CHAT)
        stream = await client.post("/openai/deployments/d/chat/completions", json=CHAT | {"stream": True})
    assert refused.status_code == 429
    told = {name: refused.headers[name] for name in ("retry-after", "retry-after-ms", "x-ratelimit-reset-tokens")}
    assert told == {"retry-after": "1", "retry-after-ms": "0", "x-ratelimit-reset-tokens": "0"}
    assert stream.status_code == 200
    assert int(stream.headers["x-ratelimit-remaining-tokens"]) < 0
    assert stream.text.startswith("event: error\ndata: ")
    assert "rate_limit_exceeded" in stream.text


async def test_anthropic_gives_back_what_was_not_answered() -> None:
    app = provider("anthropic", quota=1_000, answer_tokens=10)

    messages = [{"role": "user", "content": "x" * 400}]
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app)) as inner:
        client = anthropic.AsyncAnthropic(api_key="k", base_url="http://fake", http_client=inner, max_retries=0)
        for _ in range(3):
            answer = await client.messages.create(model="m", max_tokens=900, messages=messages)
            assert (answer.usage.input_tokens, answer.usage.output_tokens) == (100, 10)
        async with client.messages.stream(model="m", max_tokens=900, messages=messages) as stream:
            whole = await stream.get_final_message()
        assert whole.usage.output_tokens == 10
        with pytest.raises(anthropic.APIStatusError, match="rate limit"):
            await client.messages.create(model="m", max_tokens=1_001, messages=messages)
    assert app.shown()["remaining"]["output_tokens"] == 1_000 - 4 * 10


async def test_copilot_says_it_in_prose_and_percent() -> None:
    app = provider("copilot", quota=80, per_minute=2)
    async with http(app) as client:
        first = await client.post("/chat/completions", json=CHAT)
        await client.post("/chat/completions", json=CHAT)
        refused = await client.post("/chat/completions", json=CHAT)
    assert "rem=98.8&" in first.headers["x-quota-snapshot-premium_interactions"]
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "30")
    assert "Please try again in 30 seconds" in refused.text


@pytest.mark.parametrize(
    ("ask", "status", "message"),
    [
        (lambda client: client.post("/v1/chat/completions", content=b"{"), 400, "no JSON"),
        (lambda client: client.post("/v1/chat/completions", json=[]), 400, "list of 'messages'"),
        (lambda client: client.post("/v1/chat/completions", json=CHAT | {"max_tokens": -1}), 400, "above 0"),
        (lambda client: client.post("/v1/chat/completions", content=b"x" * 200), 413, "longer than 100"),
        (lambda client: client.get("/user"), 404, "/v1/messages are"),
    ],
)
async def test_what_cannot_be_read_is_refused_and_costs_nothing(
    ask: Callable[[httpx.AsyncClient], object], status: int, message: str
) -> None:  # fmt: skip
    app = provider("openai", body_bytes_max=100)
    async with http(app) as client:
        answer = await ask(client)
        models = await client.get("/v1/models")
    assert answer.status_code == status
    assert message in answer.json()["error"]["message"]
    assert models.json()["data"][0]["id"] == "fake-model"
    assert app.shown()["charged"] == {}
