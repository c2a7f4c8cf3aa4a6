"""How is one cell played (a scene, a policy, a seed), and what are its figures?"""

import asyncio
import math
import time
from collections.abc import Sequence
from email.utils import formatdate
from statistics import fmean
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from luftpause_bench.quota import virtual_time
from luftpause_bench.quota.clients import CLIENTS, Way
from luftpause_bench.quota.crew import Client, Crew, Noted
from luftpause_bench.quota.governed import Governed, Watched, config
from luftpause_bench.quota.workload import Scene
from luftpause_fakes.provider import Provider

GOVERNOR, NO_PROFILE, ARTICLE = "governor", "governor, no profile", "article"
GOVERNED: Final = {GOVERNOR: (True, "governor"), NO_PROFILE: (False, "governor"), ARTICLE: (True, "article")}
POLICIES: Final = (*CLIENTS, ARTICLE, NO_PROFILE, GOVERNOR)
SUSTAINED_SECONDS: Final = 60.0
CLASSES: Final = 3


class Cell(Struct, frozen=True):
    scene: Scene
    policy: str
    seed: int


class OfClass(Struct, frozen=True):
    """Calls. `p50`, `p99`: seconds of those served, and of those open their age. `wanted`: if nothing ever waited; None: no end."""

    served: int
    failed: int
    open: int
    wanted: int | None
    p50: float
    p99: float
    longest: float


class Figures(Struct, frozen=True):
    """
    `sent`: requests that reached the provider. `in_flight_at_first`: with the first one that was refused. `goodput`: units served of those
    that were to be had. `recovery`: seconds from the first refusal until a call that was sent after it was served and none was refused for
    60 s; None: nothing was refused. `fairness`: Jain's, of what P1's agents got. `hold_p50`, `hold_max`: seconds in the governor.
    """

    classes: tuple[OfClass, ...]
    sent: int
    refused: int
    in_flight_at_first: int
    probes: int
    goodput: float
    recovery: float | None
    fairness: float
    hold_p50: float | None
    hold_max: float | None


class Traffic:
    """The provider as seen from the network: when what was sent, refused and served. Answers have a Date, as every server's."""

    def __init__(self, app: ASGIApp, clock: Any) -> None:
        self._app, self._clock = app, clock
        self.sent = 0
        self.in_flight = 0
        self.in_flight_at_first = 0
        self.refused: list[float] = []
        self.served: list[tuple[float, float]] = []  # when it was answered, when it was sent

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sent = self._clock()
        self.sent += 1
        self.in_flight += 1

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._answered(message["status"], sent)
                message["headers"].append((b"date", formatdate(time.time(), usegmt=True).encode()))
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            self.in_flight -= 1

    def _answered(self, status: int, sent: float) -> None:
        if status < 400:
            self.served.append((self._clock(), sent))
            return
        if not self.refused:
            self.in_flight_at_first = self.in_flight
        self.refused.append(self._clock())

    def recovery(self, ended: float) -> float | None:
        if not self.refused:
            return None
        first, number = self.refused[0], 0
        for answered, sent in sorted(self.served):
            while number < len(self.refused) and self.refused[number] <= answered:
                number += 1
            if sent > first and (number == len(self.refused) or self.refused[number] > answered + SUSTAINED_SECONDS):
                return answered - first
        return ended - first


def play(cell: Cell) -> Figures:
    """In virtual time. ImportError: the policy's package is missing."""
    return virtual_time.run(_played(cell), cell.seed)


async def _played(cell: Cell) -> Figures:
    scene, loop = cell.scene, asyncio.get_running_loop()
    provider = Provider(replace(scene.provider, seed=cell.seed), loop.time, time.time)
    traffic = Traffic(provider, loop.time)
    way = Way(scene, traffic)
    watched = None
    if cell.policy in GOVERNED:
        profile, policy = GOVERNED[cell.policy]
        section = config(scene, profile=profile, policy=policy)
        watched = Watched(section, cell.seed)
        client: Client = Governed(way, watched.port, section["targets"]["provider"]["profile"])
    else:
        client = CLIENTS[cell.policy](way, cell.seed)
    try:
        calls = await Crew(scene, client, cell.seed).play()
    finally:
        await client.close()
        if watched is not None:
            await watched.close()
    return figures_of(
        scene, calls, client, sent=traffic.sent, refused=len(traffic.refused), in_flight_at_first=traffic.in_flight_at_first,
        probes=watched.probes if watched else 0, recovery=traffic.recovery(scene.seconds),
    )  # fmt: skip


def figures_of(
    scene: Scene, calls: Sequence[Noted], client: Client, *, sent: int, refused: int, in_flight_at_first: int, probes: int,
    recovery: float | None,
) -> Figures:  # fmt: skip
    holds = sorted(getattr(client, "holds", ()))
    served = [each for each in calls if each.ended == "served"]
    of_agents = [sum(each.call.agent == agent.name for each in served) for agent in scene.agents if agent.priority == 1]
    return Figures(
        classes=tuple(_of_class(scene, calls, priority) for priority in range(CLASSES)),
        sent=sent,
        refused=refused,
        in_flight_at_first=in_flight_at_first,
        probes=probes,
        goodput=sum(each.call.tokens for each in served) / scene.capacity,
        recovery=recovery,
        fairness=_jain(of_agents),
        hold_p50=_part(holds, 0.50) if holds else None,
        hold_max=holds[-1] if holds else None,
    )


def _of_class(scene: Scene, calls: Sequence[Noted], priority: int) -> OfClass:
    mine = [each for each in calls if each.call.priority == priority]
    seconds = sorted(each.seconds for each in mine if each.ended != "failed")
    ended = [each.ended for each in mine]
    return OfClass(
        ended.count("served"),
        ended.count("failed"),
        ended.count("open"),
        scene.wanted(priority),
        _part(seconds, 0.50),
        _part(seconds, 0.99),
        seconds[-1] if seconds else math.nan,
    )


def _part(ordered: Sequence[float], part: float) -> float:
    """The nearest rank."""
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)] if ordered else math.nan


def _jain(shares: Sequence[int]) -> float:
    return fmean(shares) ** 2 / fmean(share * share for share in shares) if any(shares) else 0.0
