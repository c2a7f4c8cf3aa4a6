"""Does `luftpause fake-provider` run as a process?"""

import asyncio
import sys

import httpx

from tests.support.processes import running


async def test_it_serves_what_its_options_say_until_it_is_told_to_stop() -> None:
    options = ("--family", "github", "--port", "0", "--quota", "3", "--speed", "3600", "--latency-seconds", "0", "--refusal-status", "429")
    async with (
        running("fake-provider", *options) as provider,
        httpx.AsyncClient(base_url=provider.at["http"], trust_env=False, timeout=60) as client,
    ):
        answers = await asyncio.gather(*(client.get("/user") for _ in range(12)))
        shown = (await client.get("/_fake")).json()
        provider.terminate()
        assert await provider.ended() == 0
    statuses = [answer.status_code for answer in answers]
    assert statuses.count(200) >= 3
    assert statuses.count(200) == shown["taken"]
    assert statuses.count(429) == sum(shown["refused"].values())
    assert all("date" in answer.headers for answer in answers)


async def test_a_status_that_no_provider_uses_is_an_error_that_names_the_others() -> None:
    command = (sys.executable, "-m", "luftpause", "fake-provider", "--refusal-status", "500")
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE, env={"COLUMNS": "200", "PATH": "/usr/bin"})
    _, said = await process.communicate()
    assert process.returncode == 2
    assert b"403 or 429" in said
