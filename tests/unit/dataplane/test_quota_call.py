"""Does a question about a lease end as it must, whenever its client leaves or the dataplane stops?"""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from luftpause.dataplane.quota_call import QuotaCall
from luftpause.dataplane.quota_questions import Reply


class Client:
    """A connection that notes its answers."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.server_state = SimpleNamespace(tasks=set[asyncio.Task[None]]())
        self.keeps, self.more = True, b""
        self.handler: QuotaCall | None = None
        self.answers: list[bytes] = []

    def answer(self, data: bytes) -> None:
        self.answers.append(data)

    async def ended(self) -> None:
        async with asyncio.timeout(60):
            await asyncio.gather(*self.server_state.tasks, return_exceptions=True)


def call_of(client: Client, waiting: set[QuotaCall]) -> QuotaCall:
    request = SimpleNamespace(head=SimpleNamespace(path="/v1/quota/one/reserve"), body=b"{}", principal="")
    return QuotaCall(cast("Any", client), cast("Any", request), "one", waiting)


async def test_a_client_that_left_before_its_question_began_has_asked_for_nothing() -> None:
    client, waiting, asked = Client(), set[QuotaCall](), list[str]()
    call = call_of(client, waiting)

    async def reserve(call: QuotaCall) -> Reply:
        call.asks(waits=True)
        asked.append("asked")
        return Reply(b"{}")

    call.start(reserve)
    call.client_left()
    await client.ended()
    assert (client.answers, waiting, asked) == ([], set(), [])


async def test_who_waits_hears_that_the_dataplane_stops_and_who_has_left_hears_nothing() -> None:
    stopped, left, waiting = Client(), Client(), set[QuotaCall]()

    async def reserve(call: QuotaCall) -> Reply:
        call.asks(waits=True)
        return await asyncio.get_running_loop().create_future()

    calls = [call_of(client, waiting) for client in (stopped, left)]
    for call in calls:
        call.start(reserve)
    await asyncio.sleep(0)
    assert waiting == set(calls)
    calls[0].stop()
    calls[1].client_left()
    await asyncio.gather(stopped.ended(), left.ended())
    (answer,) = stopped.answers
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 1\r\n" in answer
    assert b'"code":"stopping"' in answer
    assert (left.answers, waiting) == ([], set())


async def test_a_question_that_asks_for_nothing_is_carried_out_though_its_client_left() -> None:
    client, done = Client(), list[str]()
    call = call_of(client, set())

    async def report(_: QuotaCall) -> Reply:
        await asyncio.sleep(0)
        done.append("reported")
        return Reply(b"{}")

    call.start(report)
    call.client_left()
    await client.ended()
    assert (done, client.answers) == (["reported"], [])
