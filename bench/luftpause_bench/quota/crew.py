"""How do agents make their calls, and what is noted of each?"""

import asyncio
from collections.abc import AsyncIterator
from itertools import count
from random import Random
from typing import Protocol

from msgspec import Struct

from luftpause_bench.quota.virtual_time import at, until
from luftpause_bench.quota.workload import Agent, Scene


class Call(Struct, frozen=True):
    """`began`: when the agent wanted it. `tokens`: prompt and answer, at most; 1 where calls are counted."""

    number: int
    agent: str
    priority: int
    tokens: int
    began: float


class Client(Protocol):
    """What all agents call through."""

    async def call(self, call: Call) -> bool:
        """Whether it was served; False: given up."""
        ...

    async def close(self) -> None: ...


class Noted(Struct, frozen=True):
    """`seconds`: from the agent's wish to its answer, to giving up, or to the end of the play."""

    call: Call
    ended: str  # served, failed or open
    seconds: float


class Crew:
    """`calls` has those that ended; `open` those under way."""

    def __init__(self, scene: Scene, client: Client, seed: int) -> None:
        self._scene = scene
        self._client = client
        self._random = Random(seed)
        self._numbers = count()
        self.calls: list[Noted] = []
        self.open: dict[int, Call] = {}

    async def play(self) -> list[Noted]:
        """Lets the scene's time pass; all calls, those that are still under way with their age."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        await until(began + self._scene.seconds, *(self._agent(agent, began) for agent in self._scene.agents))
        ended = loop.time()
        return self.calls + [Noted(call, "open", ended - call.began) for call in self.open.values()]

    async def _agent(self, agent: Agent, began: float) -> None:
        if not agent.round_seconds:
            await asyncio.sleep(self._random.random())
            while True:
                await self._call(agent)
                await asyncio.sleep(agent.pause_seconds)
        async for left in _rounds(agent, began):
            await asyncio.gather(*(self._take(agent, left) for _ in range(agent.at_once)))

    async def _take(self, agent: Agent, left: list[int]) -> None:
        while left:
            left.pop()
            await self._call(agent)

    async def _call(self, agent: Agent) -> None:
        loop = asyncio.get_running_loop()
        call = Call(next(self._numbers), agent.name, agent.priority, self._random.randint(*agent.tokens), loop.time())
        self.open[call.number] = call
        served = await self._client.call(call)
        del self.open[call.number]
        self.calls.append(Noted(call, "served" if served else "failed", loop.time() - call.began))


async def _rounds(agent: Agent, began: float) -> AsyncIterator[list[int]]:
    """Each with a list of its calls to be emptied."""
    loop, number = asyncio.get_running_loop(), 0
    while True:
        await at(began + number * agent.round_seconds)
        yield list(range(agent.calls))
        number = max(number + 1, int(-(-(loop.time() - began - 1e-6) // agent.round_seconds)))
