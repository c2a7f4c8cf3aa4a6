"""Does the dataplane survive what nobody would send on purpose? `poe fuzz` searches for ten minutes; it is no part of the suite.

An input that looks new from outside (statuses, texts of errors, facts) is kept and changed further. A fault is made smaller and shown
with the command that plays it again.
"""

import argparse
import asyncio
import base64
import logging
import os
import resource
import secrets
import sys
import time
import traceback
from pathlib import Path
from random import Random

import uvloop

from tests.fuzz.mutations import BYTES_MAX, mutated, smaller
from tests.fuzz.targets import TARGETS, Look

CORPUS_MAX = 3_000
GROWTH_BYTES_MAX = 64 * 2**20
WARM_SECONDS = 20.0
CONFIRM = 3  # a step that was slow by chance is not slow again
FAULTS_MAX = 10


class Search:
    def __init__(self, names: list[str], seed: int) -> None:
        self.chance = Random(seed)
        self.names = names
        self.corpus = {name: list(TARGETS[name][1]) for name in names}
        self.looks: set[Look] = set()
        self.faults: dict[str, str] = {}
        self.cases = 0
        self.loop_errors: list[str] = []
        self.rss_warm = 0

    async def run(self, seconds: float) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: self.loop_errors.append(str(context)))
        began = said = time.monotonic()
        for name in self.names:
            for data in TARGETS[name][1]:
                await self.case(name, data, 0)
        while (now := time.monotonic()) - began < seconds and len(self.faults) < FAULTS_MAX:
            name = self.chance.choice(self.names)
            corpus = self.corpus[name]
            data = mutated(self.chance.choice(corpus), self.chance, corpus)
            await self.case(name, data, self.chance.randrange(2**32))
            if now - said > 30:
                said = now
                print(f"{now - began:5.0f} s  {self.cases} cases, {len(self.looks)} looks, {rss() >> 20} MiB", flush=True)
            self.memory(now - began)

    async def case(self, name: str, data: bytes, seed: int) -> None:
        self.cases += 1
        try:
            look = await self.play(name, data, seed)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a fault
            await self.fault(name, data, seed, error)
            return
        if look not in self.looks:
            self.looks.add(look)
            if len(data) <= BYTES_MAX // 2 and len(self.corpus[name]) < CORPUS_MAX:
                self.corpus[name].append(data)

    async def play(self, name: str, data: bytes, seed: int) -> Look:
        self.loop_errors.clear()
        look = await TARGETS[name][0](data, seed)
        assert not self.loop_errors, self.loop_errors[0]
        return look

    async def again(self, name: str, data: bytes, seed: int) -> str:
        """What it raises every time; empty: it does not."""
        found = ""
        for _ in range(CONFIRM):
            try:
                await self.play(name, data, seed)
            except Exception as error:  # noqa: BLE001
                found = kind(error)
            else:
                return ""
        return found

    async def fault(self, name: str, data: bytes, seed: int, error: Exception) -> None:
        found = await self.again(name, data, seed)
        if not found or found in self.faults:
            return
        self.faults[found] = ""
        less = await self.made_smaller(name, data, seed, found)
        shown = base64.b64encode(less).decode()
        print("".join(traceback.format_exception(error)))
        print(f"FAULT {name}: {found}\n  {less[:600]!r}\n  python -m tests.fuzz --replay {name}:{seed}:{shown[:4000]}", flush=True)
        self.faults[found] = shown

    async def made_smaller(self, name: str, data: bytes, seed: int, found: str) -> bytes:
        """`smaller` asks a question at a time, and each needs the loop: so it runs beside it."""
        loop = asyncio.get_running_loop()

        def fails(less: bytes) -> bool:
            return asyncio.run_coroutine_threadsafe(self.again(name, less, seed), loop).result() == found

        return await asyncio.to_thread(smaller, data, fails)

    def memory(self, seconds: float) -> None:
        if seconds < WARM_SECONDS or self.cases % 1000:
            return
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        self.rss_warm = self.rss_warm or peak
        if peak > self.rss_warm + GROWTH_BYTES_MAX:
            self.faults["memory"] = f"grew from {self.rss_warm >> 20} to {peak >> 20} MiB"
            print("FAULT memory:", self.faults["memory"], flush=True)
            self.rss_warm = peak


def kind(error: Exception) -> str:
    """Equal for the same fault: where it was raised, and the beginning of its text."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    text = "".join(each for each in str(error) if not each.isdigit())
    return f"{type(error).__name__} {Path(where.filename).name}:{where.name}: {text[:40]}"


def rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32))
    parser.add_argument("--target", choices=sorted(TARGETS), action="append")
    parser.add_argument("--replay", help="TARGET:SEED:BASE64 of a fault")
    options = parser.parse_args()
    logging.disable()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if options.replay:
            name, seed, shown = options.replay.split(":")
            print(runner.run(TARGETS[name][0](base64.b64decode(shown), int(seed))))
            return 0
        search = Search(options.target or sorted(TARGETS), options.seed)
        print(f"seed {options.seed}: {', '.join(search.names)} for {options.seconds:g} s", flush=True)
        began = time.monotonic()
        runner.run(search.run(options.seconds))
    took = time.monotonic() - began
    print(f"seed {options.seed}: {search.cases} cases in {took:.0f} s, {len(search.looks)} looks, {len(search.faults)} faults")
    return 1 if search.faults else 0


if __name__ == "__main__":
    sys.exit(main())
