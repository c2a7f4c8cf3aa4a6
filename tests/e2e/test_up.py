"""Does `luftpause up` run the whole stack, say what is wrong, and leave nothing behind?"""

import asyncio
import os
import re
import shlex
import shutil
import signal
import socket
import sys
from pathlib import Path

import httpx
import pytest

from luftpause.cli import app as cli
from luftpause.kit.errors import LuftpauseError
from tests.support.pids import descendants, gone
from tests.support.processes import Process, running
from tests.support.terminal import on_a_terminal

pytestmark = pytest.mark.timeout(300)
ROOT = Path(__file__).resolve().parents[2]
FAKES = ("--engine", "fake")  # where it does not matter what answers: llama.cpp takes seconds to load its model


def up(folder: Path) -> tuple[str, ...]:
    return ("up", "--free-ports", "--state", str(folder / "state"))


def pid_of(process: Process, command: str) -> int:
    """The child that runs `luftpause COMMAND`."""
    (pid,) = [
        pid for pid in descendants(process.process.pid) if f"luftpause\0{command}\0".encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    return pid


async def test_ctrl_c_stops_everything(tmp_path: Path) -> None:
    async with running(*up(tmp_path), *FAKES, folder=tmp_path) as stack:
        started = descendants(stack.process.pid)
        assert len(started) >= 6
        stack.process.send_signal(signal.SIGINT)
        assert await stack.ended() == 0
        await gone(started)
        stopping = stack.logged().partition("stopping …")[2]
        assert "stopping" in stopping
        assert not re.search("Traceback|no connection|no session|left before|died", stopping), stopping


async def test_what_it_prints_and_the_readmes_example_work_as_they_are(tmp_path: Path) -> None:
    async with running(*up(tmp_path), folder=tmp_path) as stack:
        shown = stack.logged()
        assert f"claude mcp add --transport http --scope local luftpause {stack.at['mcp']}" in shown
        assert str(tmp_path / "state") in shown
        (curl,) = [line.strip() for line in shown.splitlines() if line.strip().startswith("curl ")]
        assert '"chat.completion"' in await answer_to(curl)
        (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
        assert "http://127.0.0.1:8080/v1" in example
        assert (await output(sys.executable, "-c", example.replace("http://127.0.0.1:8080/v1", stack.at["base_url"]))).strip()


async def answer_to(curl: str) -> str:
    """Of the printed command; where curl is not installed, of the request that it stands for."""
    if shutil.which("curl"):
        return await output("bash", "-c", curl + " --silent --fail")
    _, url, *options = shlex.split(curl)
    given = dict(zip(options[::2], options[1::2], strict=True))
    headers = dict([given["-H"].split(": ", 1)])
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        return (await client.post(url, headers=headers, content=given["-d"])).raise_for_status().text


async def output(*command: str) -> str:
    """What a command prints; it must succeed."""
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
    out, err = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, err.decode()
    return out.decode()


async def test_when_one_service_dies_it_says_which_and_stops_the_rest(tmp_path: Path) -> None:
    async with running(*up(tmp_path), *FAKES, folder=tmp_path) as stack:
        started = descendants(stack.process.pid)
        os.kill(pid_of(stack, "dataplane"), signal.SIGKILL)
        assert await stack.ended() == 1
        assert "dataplane ended by itself (killed by SIGKILL)" in stack.logged()
        await gone(started)


async def test_kill_9_of_it_leaves_no_process(tmp_path: Path) -> None:
    async with running(*up(tmp_path), *FAKES, folder=tmp_path) as stack:
        started = descendants(stack.process.pid)
        stack.kill()
        await stack.ended()
        await gone(started)


def refusal(*arguments: str) -> str:
    """Why the command does not start, in this process; the program would print it and end with status 2."""
    with pytest.raises(LuftpauseError) as refused:
        cli.app(arguments, standalone_mode=False)
    return refused.value.message


@pytest.mark.parametrize("option", ["--dataplane-port", "--runtime-port", "--scheduler-port", "--status-port"])
def test_a_port_in_use_is_named_with_the_option_that_changes_it(option: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        said = refusal(*up(tmp_path), option, str(port))
    assert said == f"port {port} on 127.0.0.1 is in use; choose another with {option} (or --free-ports)"


async def test_real_replicas_come_from_a_configuration(tmp_path: Path) -> None:
    async with running("fake-engine", "--port", "0", "--model", "mine", folder=tmp_path) as engine:
        config = tmp_path / "luftpause.yaml"
        config.write_text(f"replicas:\n  - {{name: own, url: '{engine.at['http']}'}}\n")
        async with (
            running(*up(tmp_path), "--config", str(config), folder=tmp_path) as stack,
            httpx.AsyncClient(trust_env=False, timeout=60) as client,
        ):
            body = {"model": "mine", "messages": [{"role": "user", "content": "Hello."}]}
            answer = await client.post(f"{stack.at['base_url']}/chat/completions", json=body, timeout=30)
            assert answer.status_code == 200
            assert answer.headers["x-luftpause-replica"] == "own"


def test_a_configuration_without_replicas_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "luftpause.yaml"
    config.write_text("log: {level: info}\n")
    assert "replicas" in refusal(*up(tmp_path), "--config", str(config))


async def models_of(stack: Process) -> list[str]:
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        return sorted(model["id"] for model in (await client.get(f"{stack.at['base_url']}/models")).json()["data"])


async def serves(stack: Process, *models: str) -> None:
    async with asyncio.timeout(60):
        while await models_of(stack) != sorted(models):
            await asyncio.sleep(0.05)  # replicas are known after their first probe; nothing else tells


async def says(stack: Process, pattern: str) -> None:
    """Until its log has it."""
    async with asyncio.timeout(60):
        while not re.search(pattern, stack.logged()):
            await asyncio.sleep(0.05)  # polling a log


def replicas(file: Path, *engines: Process, rest: str = "") -> None:
    entries = "".join(f"  - {{name: r{number}, url: '{engine.at['http']}'}}\n" for number, engine in enumerate(engines))
    part = file.with_suffix(".part")
    part.write_text(f"replicas:\n{entries}{rest}" if entries else f"replicas: []\n{rest}")
    part.replace(file)


async def test_replicas_of_the_file_come_and_go_while_it_runs(tmp_path: Path) -> None:
    file = tmp_path / "luftpause.yaml"
    fake = ("fake-engine", "--port", "0", "--speed", "20", "--model")
    async with running(*fake, "one", folder=tmp_path) as one, running(*fake, "two", folder=tmp_path) as two:
        replicas(file, one)
        async with running(*up(tmp_path), "--config", str(file), folder=tmp_path) as stack:
            await serves(stack, "one")
            replicas(file, one, two, rest="dataplane: {stop_grace_seconds: 9}\n")
            await serves(stack, "one", "two")
            await says(stack, r"up +│ .*these keys have changed .*dataplane\.stop_grace_seconds")
            await says(stack, r"up +│ .*re-read; the replicas have changed .*added=\[\"r1\"\]")
            file.write_text("replicas:\n  - {nam: r0}\n")
            await says(stack, re.escape(f"{file}:2: replicas[0].nam: unknown key; did you mean name?"))
            assert await models_of(stack) == ["one", "two"]
            replicas(file)
            stack.process.send_signal(signal.SIGHUP)
            await serves(stack)
            assert stack.process.returncode is None


async def test_with_fake_engines_the_replicas_of_the_file_stay_unused(tmp_path: Path) -> None:
    file = tmp_path / "luftpause.yaml"
    async with running("fake-engine", "--port", "0", "--model", "own", folder=tmp_path) as engine:
        replicas(file, engine)
        async with running(*up(tmp_path), "--config", str(file), "--engine", "fake", folder=tmp_path) as stack:
            before = dict(stack.at)
            await serves(stack, "fake-1b")
            replicas(file)
            await says(stack, "the replicas of the file are not used")
            await serves(stack, "fake-1b")
            assert stack.at == before


async def test_closing_its_terminal_stops_everything_also_where_it_follows_a_file(tmp_path: Path) -> None:
    file = tmp_path / "luftpause.yaml"
    file.write_text("replicas:\n  - {name: a, url: 'http://127.0.0.1:9', models: [m]}\n")
    async with on_a_terminal(*up(tmp_path), "--config", str(file), folder=tmp_path) as (stack, close):
        started = descendants(stack.pid)
        assert len(started) >= 3
        close()
        assert await asyncio.wait_for(stack.wait(), 60) == 0
        await gone(started)
