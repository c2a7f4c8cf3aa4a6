"""What does a client see of each thing that can go wrong, and what is counted? (O02, O03, O05, O19, O20)

The table of the specification, before real processes. Each row ends with nothing in flight and one failed turn, or none where no engine was
to be asked.
"""

import asyncio
import json
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.integration.dataplane.world import World, body_of, world
from tests.support.plane import Answer, Client, post

TEXT = "Hello. [calls=0 answer=20]"
STREAM, WHOLE = body_of(TEXT), body_of(TEXT, stream=False)
SGLANG_FULL = '{"object":"error","message":"The request queue is full.","type":"ServiceUnavailable","param":null,"code":503}'
UNKNOWN = "no generative replica serves model 'x'; served: digest, fake-1b, flood, much"
NO_CLASSIFIER = "no classifier replica serves model 'digest'"
IMPATIENT = "dp-1"  # for the rows in which an engine is silent: in all others one that a busy machine starves is waited for
SILENT, CLOSED = "engine engine-0: did not answer within 1 s", "engine engine-0: closed the connection before it answered"
ONCE_MORE = {"retry-after": "17"}
HTML = "<html><body>502 Bad Gateway</body></html>"


@pytest.fixture(scope="module")
def runner() -> Generator[asyncio.Runner]:
    with asyncio.Runner() as found:
        yield found


@pytest.fixture(scope="module")
def there(runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    made = world(tmp_path_factory.mktemp("errors"), scheduler={"no_replica": "refuse", "no_replica_seconds": 1})
    there = runner.run(made.__aenter__())
    runner.run(there.whole.start_plane(IMPATIENT, first_byte_seconds=1, idle_seconds=1))
    yield there
    runner.run(made.__aexit__(None, None, None))


@dataclass
class Row:
    """`faults` are the fake engine's. `says` stands in the message; `failed`: turns that the scheduler counts as failed."""

    body: bytes
    status: int
    code: str = ""
    says: str = ""
    faults: dict[str, Any] = field(default_factory=dict)
    failed: int = 1
    asked: int = 1  # requests that the fake engine got
    complete: bool = True
    holds: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    path: str = "/v1/chat/completions"
    run: bool = True  # it passed the scheduler, so its answer names its run
    or_served: bool = False  # as on a busy machine, where a probe may find the engine well before the client is answered

    def as_it_came(self, answer: Answer) -> "Row":
        return replace(self, status=200, code="", says="", asked=2, holds=b"[DONE]") if self.or_served and answer.status == 200 else self


ROWS = {
    "not JSON": Row(b"nope", 400, "not_json", "not JSON", failed=0, asked=0, run=False),
    "a list": Row(b"[1,2]", 400, "bad_field", "must be an object", failed=0, asked=0, run=False),
    "no model": Row(b'{"messages":[]}', 400, "no_model", "GET /v1/models", failed=0, asked=0, run=False),
    "stream is no bool": Row(b'{"model":"fake-1b","stream":"yes"}', 400, "bad_field", "`stream`", failed=0, asked=0, run=False),
    "no messages": Row(b'{"model":"fake-1b"}', 400, holds=b"messages"),
    "unknown model": Row(body_of(model="x"), 404, "model_not_found", UNKNOWN, failed=0, asked=0),
    "an API that no engine of the model has": Row(
        b'{"model":"digest","input":"x"}', 404, "api_not_served", "digest", failed=0, asked=0, path="/v1/responses"
    ),
    "no classifier": Row(b'{"model":"digest","input":"x"}', 404, "model_not_found", NO_CLASSIFIER, failed=0, asked=0, path="/v1/decide"),
    "too many requests": Row(STREAM, 429, holds=b"error", faults={"refuse_status": 429, "refuse_retry_after": "17"}, headers=ONCE_MORE),
    "a bad request": Row(STREAM, 400, faults={"refuse_status": 400}),
    "an error of the engine": Row(STREAM, 500, faults={"refuse_status": 500}),
    "a page of a gateway": Row(STREAM, 502, faults={"refuse_status": 502, "refuse_text": HTML}, holds=HTML.encode()),
    "unavailable for another reason": Row(STREAM, 503, faults={"refuse_status": 503, "refuse_retry_after": "17"}, headers=ONCE_MORE),
    "a full queue": Row(STREAM, 200, faults={"refuse_status": 503, "refuse_text": SGLANG_FULL}, failed=0, asked=2, holds=b"[DONE]"),
    "silence before the head": Row(STREAM, 504, "first_byte_timeout", SILENT, faults={"stall_after_tokens": 0}),
    "silence in the stream": Row(STREAM, 200, faults={"stall_after_tokens": 2}, complete=False, holds=b"data: "),
    "death before the head": Row(STREAM, 502, "engine_failed", CLOSED, faults={"die_after_tokens": 0}, failed=0, or_served=True),
    "death in the stream": Row(STREAM, 200, faults={"die_after_tokens": 2}, complete=False, holds=b"data: "),
    "an error as the first event": Row(STREAM, 200, faults={"error_after_tokens": 0}, holds=b'"error"'),
    "an error in the stream": Row(STREAM, 200, faults={"error_after_tokens": 2}, holds=b'"error"'),
    "nothing at all": Row(WHOLE, 200, failed=0, holds=b'"choices"'),
}  # fmt: skip


async def ask(there: World, body: bytes, path: str = "/v1/chat/completions") -> Answer:
    client = await Client.to(there.plane)
    try:
        return await client.ask(post(body, path=path))
    finally:
        client.writer.transport.abort()


@pytest.mark.parametrize("name", ROWS)
def test_what_goes_wrong_reaches_the_client_as_the_table_says(name: str, there: World, runner: asyncio.Runner) -> None:
    async def run() -> None:
        row = ROWS[name]
        there.name = IMPATIENT if "stall_after_tokens" in row.faults else "dp-0"
        times = {f"{each.partition('_')[0]}_times": 1 for each in row.faults}
        if row.faults:
            await there.whole.order(0, **row.faults, **times)
        before, engine = await there.status(), await there.whole.engine(0)
        answer = await ask(there, row.body, row.path)
        row = row.as_it_came(answer)
        await there.nothing_left()
        after, then = await there.status(), await there.whole.engine(0)
        assert (answer.status, answer.complete) == (row.status, row.complete), answer.body
        assert row.holds in answer.body
        assert ("x-luftpause-run-id" in answer.headers) is row.run
        assert ("x-luftpause-replica" in answer.headers) is (row.asked > 0)
        assert answer.headers.items() >= row.headers.items()
        if row.code or row.says:
            assert row.code in {"", answer.error["code"]}
            assert row.says in answer.error["message"]
            assert answer.error["type"]
            assert b"Traceback" not in answer.body
        assert after["events"].get("TurnFailed", 0) - before["events"].get("TurnFailed", 0) == row.failed
        assert then["turns"] - engine["turns"] == row.asked
        assert after["state"]["runs"]["paused"] == before["state"]["runs"]["paused"]

    runner.run(run())


def test_an_engine_that_is_gone_is_502_at_once_and_503_as_soon_as_that_is_known(there: World, runner: asyncio.Runner) -> None:
    """The last one: the engine stays away."""

    async def run() -> None:
        there.whole.engines[0].kill()
        await there.whole.engines[0].ended()
        answer = await ask(there, STREAM)
        if answer.status != 503:  # as on a busy machine, where a probe may come first
            assert (answer.status, answer.error["code"]) == (502, "engine_unreachable")
            assert "engine-0: connection refused" in answer.error["message"]
        await there.whole.until(lambda seen: seen["state"]["replicas"][0]["health"] == "unhealthy")
        answer = await ask(there, STREAM)
        assert (answer.status, answer.error["code"]) == (503, "no_replica")
        assert int(answer.headers["retry-after"]) >= 1
        assert json.loads(answer.body)["error"]["type"]
        await there.whole.quiet()

    runner.run(run())
