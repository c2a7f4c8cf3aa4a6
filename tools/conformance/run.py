"""How many checks of the official MCP conformance suite does the runtime's server pass?

    python tools/conformance/run.py [--clients FOLDER] [--only fixture|runtime] [SCENARIO …]

The suite's scenarios call tools, prompts and resources with fixed names; a fixture has them, built through the runtime's own factory, front
and session manager. The scenarios that need no such names run against a real runtime too. Exit status 1: a check failed; 3: the suite is
not installed (tools/clients/install.sh).
"""

import argparse
import asyncio
import json
import os
import re
import sys
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import fixture
import httpx

SETS: Final = {
    "2025-11-25": ("--requirements", "2025-11-25"),
    "2026-07-28": ("--requirements", "2026-07-28"),
    "all": ("--suite", "all"),
}
BARE: Final = (
    "server-initialize", "server-session-lifecycle", "ping", "tools-list", "server-sse-multiple-streams", "dns-rebinding-protection",
    "http-header-validation", "caching",
)  # fmt: skip
EXPECTED: Final = {"caching": 3}  # failing checks: it wants resources, and the runtime has none
SECONDS_MAX: Final = 300
START_SECONDS_MAX: Final = 30

_LINE: Final = re.compile(r"^. ([a-z0-9-]+): (\d+) passed, (\d+) failed", re.MULTILINE)
_CHECK: Final = re.compile(r"Passed: (\d+)/(\d+)")


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--clients", type=Path, default=default_folder(), help="where install.sh put the suite")
    arguments.add_argument("--only", choices=("fixture", "runtime"))
    arguments.add_argument("scenarios", nargs="*", help="of the runtime's; all if none is given")
    given = arguments.parse_args()
    program = given.clients / "node_modules/.bin/conformance"
    if not program.exists():
        print(f"{program} is missing: run tools/clients/install.sh", file=sys.stderr)
        return 3
    return asyncio.run(_all(given.clients, given.only, tuple(given.scenarios) or BARE))


def default_folder() -> Path:
    return Path(os.environ.get("LUFTPAUSE_CLIENTS") or Path.home() / ".cache/luftpause/clients")


async def _all(clients: Path, only: str | None, scenarios: Sequence[str]) -> int:
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="luftpause-conformance-") as folder:
        suite = Suite(clients, Path(folder))
        if only != "runtime":
            async with fixture.serving() as url:
                for name, options in SETS.items():
                    wrong += await suite.whole_set(name, url, options)
        if only != "fixture":
            async with _runtime(Path(folder)) as url:
                for scenario in scenarios:
                    wrong += await suite.one(scenario, url, EXPECTED.get(scenario, 0))
    return 1 if wrong else 0


class Suite:
    """The suite's program. A scenario with a failure runs once more: under load the suite's own requests fail at times."""

    def __init__(self, clients: Path, folder: Path) -> None:
        self._clients = clients
        self._folder = folder

    async def whole_set(self, name: str, url: str, options: Sequence[str]) -> int:
        """Failed checks."""
        lines = _LINE.findall(_summary(await self._run(url, options)))
        passed, again = sum(int(line[1]) for line in lines), [line for line in lines if int(line[2])]
        failed = 0
        for scenario, before, lost in again:
            now_passed, now_failed = await self._scenario(scenario, url)
            passed += now_passed - int(before)
            failed += now_failed
            print(f"  {scenario}: {lost} failed, run again: {now_failed} failed")
        print(f"fixture, {name}: {passed}/{passed + failed} checks in {len(lines)} scenarios", flush=True)
        return failed if lines else 1

    async def one(self, scenario: str, url: str, expected: int) -> int:
        passed, failed = await self._scenario(scenario, url)
        if failed != expected:
            passed, failed = await self._scenario(scenario, url)
        print(
            f"runtime, {scenario}: {passed}/{passed + failed} checks" + (f", {expected} are expected to fail" if expected else ""),
            flush=True,
        )
        return int(failed != expected or not passed)

    async def _scenario(self, scenario: str, url: str) -> tuple[int, int]:
        out = await self._run(url, ("--scenario", scenario))
        found = _CHECK.findall(out)
        if not found:
            print(out[-2000:], file=sys.stderr)
            return 0, 1
        passed, total = map(int, found[-1])
        return passed, total - passed

    async def _run(self, url: str, options: Sequence[str]) -> str:
        modules = self._clients / "node_modules"
        path = f"{modules}/node/bin:{os.environ.get('PATH', '/usr/bin:/bin')}"
        process = await asyncio.create_subprocess_exec(
            str(modules / ".bin/conformance"), "server", "--url", url, *options, "-o", str(self._folder / "results"),
            env={"HOME": str(self._folder), "PATH": path},
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        try:
            async with asyncio.timeout(SECONDS_MAX):
                out, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return out.decode(errors="replace")


@asynccontextmanager
async def _runtime(folder: Path) -> AsyncGenerator[str]:
    """URL of a real runtime."""
    config, announced = folder / "luftpause.yaml", folder / "at.json"
    config.write_text(f"runtime:\n  port: 0\n  state: {folder / 'state'}\n")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "luftpause", "runtime", "--config", str(config), "--announce", str(announced)
    )
    try:
        async with asyncio.timeout(START_SECONDS_MAX), httpx.AsyncClient(trust_env=False) as http:
            while not announced.exists() or not announced.read_text():  # noqa: ASYNC110 - a file has no event
                await asyncio.sleep(0.05)
            at = json.loads(announced.read_text())
            (await http.get(f"{at['http']}/health")).raise_for_status()
        yield at["mcp"]
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def _summary(out: str) -> str:
    return out.rpartition("=== SUMMARY ===")[2]


if __name__ == "__main__":
    sys.exit(main())
