"""What must hold, whatever a client sends, an engine answers, or stands in a stream of events?

Each target plays one case on transports without sockets and returns what it looked like from outside; raises where a promise is broken.
"""

import asyncio
import itertools
import json
import re
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from time import thread_time
from typing import Any

import pytest

from tests.fuzz.seeds import ANSWERS, EVENTS, GOOD, REQUESTS
from tests.fuzz.strict import answers_in, first_request, forwarded, must
from tests.support.fake_scheduler import Decide, FakeScheduler, replica
from tests.support.plane import BODY, STREAM_BODY, post
from tests.support.raw_engine import json_answer
from tests.support.wires import FakeTransport, Rig

STEP_SECONDS_MAX = 0.1
PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")
ENDS = ("finished", "failed", "abandon")
GOOD_REQUESTS = 3  # of the seeds: turns after which the connection goes on
Look = tuple[Any, ...]
Target = Callable[[bytes, int], Coroutine[Any, Any, Look]]


def cut(data: bytes, chance: Random) -> list[bytes]:
    """At random places: nowhere, in a few, or into pieces of a few bytes."""
    places = chance.choice((0, 1, 3, 12, len(data) // 2))
    at = sorted({0, len(data), *(chance.randrange(len(data) + 1) for _ in range(min(places, 2_000)))})
    return [data[start:end] for start, end in itertools.pairwise(at)]


def timed(step: Callable[[bytes], bool], data: bytes) -> bool:
    """One read; the loop is blocked as long as it takes."""
    began = thread_time()
    taken = step(data)
    took = thread_time() - began
    must(took < STEP_SECONDS_MAX, f"the loop was blocked for {took * 1000:.0f} ms by {len(data)} bytes")
    return taken


def made(rig: Rig) -> FakeTransport:
    engine = rig.connecting[0].made()
    assert engine is not None
    return engine


async def settle(rig: Rig, scheduler: FakeScheduler, clients: Sequence[FakeTransport]) -> None:
    """Who is held leaves, and all limits run out: nothing may be left."""
    if any(state == "held" for state in scheduler.state.values()):
        for client in clients:
            client.peer_closes(ConnectionResetError())
    now = rig.sweep.now
    for _ in range(8):
        while rig.connecting:
            rig.connecting[0].refused()
        now += 700
        rig.sweep.look(now)
        await asyncio.sleep(0)
    must(not rig.relay.turns, "turns are left")
    must(not scheduler.open_turns, f"the scheduler still counts turns: {scheduler.facts}")
    for turn in scheduler.asks:
        must(sum(name in ENDS for name in scheduler.told(turn)) <= 1, f"more than one end: {scheduler.told(turn)}")
    for client in clients:
        must(client.lost, "a client's connection is left open")
    must(not any(not engine.lost for engine in rig.engines), "an engine's connection is left open")


# ---- requests -------------------------------------------------------------------------------------------------------


async def requests(data: bytes, seed: int) -> Look:
    """It makes no difference what came before: a good request, perhaps with the same head, or that or the same on another connection."""
    alone, said = await _requests(data, seed)
    like = REQUESTS[seed // 4 % GOOD_REQUESTS]
    match seed % 4:
        case 1:
            after, same = await _requests(data, seed, before=like)
        case 2:
            after, same = await _requests(data, seed, elsewhere=like)
        case 3:
            after, same = await _requests(data, seed, elsewhere=data)
        case _:
            return alone
    must((alone, said) == (after, same), f"it is read as {alone} {said} alone and as {after} {same} after its like")
    return alone


async def _requests(data: bytes, seed: int, before: bytes = b"", elsewhere: bytes = b"") -> tuple[Look, Look]:
    """Nothing but what a strict reader finds too reaches the engine; every answer is HTTP; all ends by itself.

    Returns how it looked, and whose turns the scheduler took these for.
    """
    chance = Random(seed)
    priority = chance.choice((None, None, -1))
    scheduler = FakeScheduler(replica("a", "http://a"), decide=_placing(priority))
    with pytest.MonkeyPatch.context() as patch:
        rig = Rig(scheduler, usage=chance.choice(("observe", "observe", "ask"))).patch(patch)
        if elsewhere:
            await _sends(rig, scheduler, rig.client(), [elsewhere])
        asked, seen = len(scheduler.asks), {id(engine): len(forwarded(bytes(engine.written))) for engine in rig.engines}
        client = rig.client()
        await _sends(rig, scheduler, client, [*([before] if before else []), *cut(data, chance)])
        got = [each for engine in rig.engines for each in forwarded(bytes(engine.written))[seen.get(id(engine), 0) :]]
        await settle(rig, scheduler, [client])
    written = bytes(client.written)
    first = 1 if before else 0  # of its own requests and answers
    found = answers_in(written, closed=True, methods=("GET", "HEAD"), count=9)[first:]
    got = got[first:]
    must(500 not in [status for status, _, _ in found], "an internal error")
    expected = first_request(data)
    if got and isinstance(expected, tuple):
        read = expected[1]
        sent = got[0][1]
        same = _is_meant(sent, read, priority) or b"include_usage" in sent or len(found) > 1
        must(same, f"h11 reads another body: {read[:80]!r} instead of {sent[:80]!r}")
    elif got and found and found[0][0] == 200:
        must(any(each.search(str(expected)) for each in ALLOWED), f"h11 refuses what was served: {expected}")
    said = tuple((status, body[:50] if status != 200 else b"") for status, body, _ in found)
    asks = list(scheduler.asks.values())[asked + first :]
    ends = tuple(scheduler.told(each.turn)[-1] for each in asks)
    whose = tuple((each.run, each.caller, each.turn_class.value, each.model, each.api, each.traceparent) for each in asks)
    return ("requests", said, ends, expected[:30] if isinstance(expected, str) else "ok", min(2, len(got))), whose


async def _sends(rig: Rig, scheduler: FakeScheduler, client: FakeTransport, parts: Sequence[bytes]) -> None:
    """A client sends that and closes its side; each turn that comes to an engine is answered."""
    answered = len(scheduler.asks)
    for part in parts:
        timed(client.receives, part)
        while rig.connecting:
            rig.connecting[0].made()
        for engine in rig.engines:
            while answered < len(scheduler.asks) and engine.written and scheduler.open_turns and not engine.lost:
                engine.receives(json_answer(GOOD))
                answered += 1
        await asyncio.sleep(0)
    client.peer_closes()


def _placing(priority: int | None) -> Decide:
    return lambda scheduler, ask: scheduler.place(ask.turn, "a", priority=priority)


def _is_meant(sent: bytes, read: bytes, priority: int | None) -> bool:
    """The same bytes, or the same fields and the scheduler's priority; behind what only an engine could read it stands at the end."""
    if priority is None:
        return sent == read
    try:
        due = json.loads(read) | {"priority": priority}
        return json.dumps(json.loads(sent), sort_keys=True) == json.dumps(due, sort_keys=True)
    except (ValueError, RecursionError):
        end = read.rfind(b"}")
        return sent == read[:end] + b',"priority":%d' % priority + read[end:]


# What h11 refuses and may be served: empty lines before a request, several spaces in its first line (RFC 9112, 2.2 and 3).
ALLOWED = (re.compile("^no request line received$"), re.compile(r"^illegal request line: bytearray\(b'[A-Z]+ +[^ ]+ +HTTP/1.[01]'\)$"))


# ---- answers --------------------------------------------------------------------------------------------------------


async def answers(data: bytes, seed: int) -> Look:
    """It makes no difference whether a good answer, perhaps with the same head, came before from the engine."""
    alone = await _answers(data, seed, b"")
    if seed % 2:
        after = await _answers(data, seed, ANSWERS[seed // 2 % len(ANSWERS)])
        must(alone == after, f"it is read as {alone} alone and as {after} after its like")
    return alone


async def _answers(data: bytes, seed: int, before: bytes) -> Look:
    """The client gets what a strict reader finds, or an error, or a transfer that is seen to be broken; and nobody else gets any of it."""
    chance = Random(seed)
    scheduler = FakeScheduler(replica("a", "http://a"))
    closes = chance.choice(("fin", "reset", "stays"))
    version = chance.choice(("1.1", "1.1", "1.0"))
    with pytest.MonkeyPatch.context() as patch:
        rig = Rig(scheduler, usage=chance.choice(("observe", "observe", "ask")), failover=False).patch(patch)
        if before:
            await _before(rig, before)
        client = rig.client()
        client.receives(post(STREAM_BODY, path=chance.choice(PATHS), version=version))
        engine = made(rig)
        for part in cut(data, chance):
            if timed(engine.receives, part):
                await asyncio.sleep(0)
        if closes != "stays":
            engine.peer_closes(ConnectionResetError() if closes == "reset" else None)
        await asyncio.sleep(0)
        second = rig.client()
        second.receives(post())
        await _second(rig, scheduler, second)
        await settle(rig, scheduler, [client, second])
    found = answers_in(bytes(client.written), closed=bool(client.lost))
    told = scheduler.told(list(scheduler.asks)[1 if before else 0])
    complete = bool(found) and found[0][2] and not (version == "1.0" and client.lost == "aborted")
    if "finished" in told:
        must(complete, "told as finished, and the client has no whole answer")
    said = tuple((status, whole, body[:60] if status >= 500 else b"") for status, body, whole in found)
    return ("answers", closes, said, tuple(told), client.lost, engine.lost)


async def _before(rig: Rig, answer: bytes) -> None:
    """A turn with a connection of its own, which ends."""
    client = rig.client()
    client.receives(post(STREAM_BODY))
    engine = made(rig)
    engine.receives(answer)
    engine.peer_closes()
    client.peer_closes(ConnectionResetError())
    await asyncio.sleep(0)


async def _second(rig: Rig, scheduler: FakeScheduler, second: FakeTransport) -> None:
    """A turn that comes afterwards, on the same connection if that was kept, gets its own answer."""
    turn = list(scheduler.asks)[-1]
    if scheduler.state[turn] == "held" or second.lost:
        return
    while rig.connecting:
        rig.connecting[0].made()
    turn_of = (each for each in rig.engines if not each.lost and each.protocol._receiver is not None)  # pyright: ignore[reportAttributeAccessIssue]
    engine = max(turn_of, key=lambda each: each.written.rfind(BODY), default=None)  # the first turn's body is another one
    if engine is None or scheduler.state[turn] != "started":
        return
    engine.receives(json_answer(GOOD))
    await asyncio.sleep(0)
    found = answers_in(bytes(second.written), closed=False)
    must([(status, body) for status, body, _ in found] == [(200, GOOD)], f"the next turn got {found}")


# ---- events ---------------------------------------------------------------------------------------------------------


async def events(data: bytes, seed: int) -> Look:
    """Every byte passes, or all but whole usage events where they were asked for; what is seen does not depend on the cuts."""
    if not data:
        return ("events",)
    usage, path = Random(seed).choice(("observe", "ask")), Random(seed + 1).choice(PATHS)
    length = b"content-length: %d\r\n\r\n" % len(data)
    got, facts = await _streamed([length, data], usage, path)
    pieces = cut(data, Random(seed + 2))
    lines = data.splitlines(keepends=True)
    for reads in ([length, *pieces], _in_chunks(pieces), _in_chunks(lines)):
        again, same = await _streamed(reads, usage, path)
        must(again == got, "bytes depend on the cuts")
        must(same == facts, f"what is seen depends on the cuts: {facts} and {same}")
    must(usage == "ask" or got is None or got == data, "a byte was changed")
    if got is not None:
        must(_is_without(got, data), "something was added or turned round")
    last = tuple(str(each)[:40] for each in facts[-1][1:4])
    return ("events", path, usage, got is None, len(got or b"") < len(data), tuple(name for name, *_ in facts), *last)


def _is_without(part: bytes, whole: bytes) -> bool:
    """Is `part` what is left of `whole` when some lines are taken out?"""
    left = iter(whole.split(b"\n"))
    return all(any(line == each or each.endswith(line) for each in left) for line in part.split(b"\n"))


def _in_chunks(pieces: Sequence[bytes]) -> list[bytes]:
    """Each a read of its own, as most engines send them."""
    return [b"transfer-encoding: chunked\r\n\r\n", *(b"%x\r\n%b\r\n" % (len(each), each) for each in pieces if each), b"0\r\n\r\n"]


async def _streamed(reads: Sequence[bytes], usage: str, path: str) -> tuple[bytes | None, list[tuple[object, ...]]]:
    scheduler = FakeScheduler(replica("a", "http://a"))
    with pytest.MonkeyPatch.context() as patch:
        rig = Rig(scheduler, usage=usage).patch(patch)
        client = rig.client()
        client.receives(post(STREAM_BODY, path=path))
        engine = made(rig)
        engine.receives(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n" + reads[0])
        for each in reads[1:]:
            timed(engine.receives, each)
        await asyncio.sleep(0)
        busy = any(fact[0] == "give_back" for fact in scheduler.facts)
        rig.relay.kill()
        await settle(rig, scheduler, [])
    facts = [fact[0:1] + fact[2:] for fact in scheduler.facts if fact[0] not in {"tool_calls_seen", "response_seen", "suspect"}]
    ids = [each for fact in scheduler.facts if fact[0] == "tool_calls_seen" for each in fact[2]]  # type: ignore[attr-defined]
    if busy:
        return None, [("busy",)]
    (found,) = answers_in(bytes(client.written), closed=True)
    must(found[2], "the answer is incomplete")
    return found[1], [("ids", *ids), *facts]


TARGETS: dict[str, tuple[Target, list[bytes]]] = {
    "requests": (requests, REQUESTS),
    "answers": (answers, ANSWERS),
    "events": (events, EVENTS),
}
