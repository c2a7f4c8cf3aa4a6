"""Does a whole luftpause work with tokens, and is a token nowhere but where it belongs?"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest

from luftpause.cli import subagents
from tests.support.processes import Process, running

pytestmark = pytest.mark.timeout(300)
TOKEN, CLUSTER, ANN, BEN = ("services-" + "s" * 30, "cluster-" + "c" * 30, "ann-" + "a" * 30, "ben-" + "b" * 30)
ENV = {"LUFTPAUSE_TOKEN": TOKEN}


def up(folder: Path) -> tuple[str, ...]:
    return ("up", "--free-ports", "--state", str(folder / "state"))


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def output(*command: str, env: dict[str, str]) -> tuple[int, str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("LUFTPAUSE_")}
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env={**inherited, **env}
    )
    out, err = await asyncio.wait_for(process.communicate(), 90)
    return process.returncode or 0, out.decode(), err.decode()


async def loadgen(stack: Process, *options: str, env: dict[str, str]) -> tuple[int, str, str]:
    where = ("--mcp", stack.at["mcp"]) if "--spawn" in options else ("--base-url", stack.at["base_url"])
    return await output(sys.executable, "-m", "luftpause", "loadgen", *options, *where, env=env)


async def test_a_stack_with_a_token_works_for_those_who_have_it(tmp_path: Path) -> None:
    async with running(*up(tmp_path), "--engine", "fake", env=ENV, folder=tmp_path) as stack:
        (curl,) = [line.strip() for line in stack.logged().splitlines() if line.strip().startswith("curl ")]
        assert '-H "Authorization: Bearer $LUFTPAUSE_TOKEN"' in curl
        assert f'{stack.at["mcp"]} --header "Authorization: Bearer $LUFTPAUSE_TOKEN"' in stack.logged()

        async with httpx.AsyncClient(trust_env=False, timeout=30) as http:
            pages = [stack.at["base_url"] + "/models", stack.at["status"] + "/status", stack.at["mcp"].removesuffix("/mcp") + "/status"]
            for page in pages:
                assert (await http.get(page)).status_code == 401, page
                assert (await http.get(page, headers=bearer(TOKEN))).status_code == 200, page
            page = await http.get(pages[2], headers={**bearer(TOKEN), "origin": stack.at["status"]})
            assert page.headers["access-control-allow-origin"] == stack.at["status"]
            model = (await http.get(pages[0], headers=bearer(TOKEN))).json()["data"][0]["id"]

        for key, error in ((TOKEN, None), ("sk-other", openai.AuthenticationError)):
            async with openai.AsyncOpenAI(base_url=stack.at["base_url"], api_key=key, max_retries=0) as client:
                asked = client.chat.completions.create(model=model, messages=[{"role": "user", "content": "hello"}])
                if error is None:
                    assert (await asked).choices[0].message
                else:
                    with pytest.raises(error, match="opens nothing here"):
                        await asked
        async with anthropic.AsyncAnthropic(base_url=stack.at["http"], api_key=TOKEN, max_retries=0) as client:
            said = await client.messages.create(model=model, max_tokens=20, messages=[{"role": "user", "content": "hello"}])
            assert said.content

        for options in (("--spawn", "2"), ("--agents", "2", "--duration-s", "2", "--tool-calls", "0")):
            status, out, err = await loadgen(stack, *options, "--json", env=ENV)
            assert status == 0, err
            status, _, err = await loadgen(stack, *options, env={})
            assert status == 2
            assert "--token-env" in err
            status, _, err = await loadgen(stack, *options, "--token-env", "MINE", env={"MINE": TOKEN})
            assert status == 0, err
            status, _, err = await loadgen(stack, *options, "--token-env", "MINE", env={})
            assert (status, "MINE is not set" in err) == (2, True)
            assert TOKEN not in out + err
        told = stack.logged() + "".join(path.read_text(errors="replace") for path in (tmp_path / "state").rglob("*") if path.is_file())
        assert TOKEN not in told
        assert "is not set" not in told


async def test_with_tokens_of_their_own_callers_can_not_be_faked_nor_reach_each_others_runs(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.yaml"
    tokens.write_text(f"ann: {ANN}\nben: {BEN}\n")
    tokens.chmod(0o600)
    config = tmp_path / "luftpause.yaml"
    config.write_text(f"auth: {{tokens_file: {tokens}}}\n")
    env = {"LUFTPAUSE_TOKEN": TOKEN, "LUFTPAUSE_CLUSTER_TOKEN": CLUSTER}
    async with running(*up(tmp_path), "--config", str(config), "--engine", "fake", env=env, folder=tmp_path) as stack:
        async with httpx.AsyncClient(trust_env=False, timeout=30, base_url=stack.at["base_url"] + "/") as http:
            model = (await http.get("models", headers=bearer(ANN))).json()["data"][0]["id"]
            body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 5}
            faked = {"x-luftpause-caller": "ann", "x-luftpause-run-id": "main"}
            for token in (ANN, BEN):
                answer = await http.post("chat/completions", json=body, headers={**bearer(token), **faked})
                assert (answer.status_code, answer.headers["x-luftpause-run-id"]) == (200, "main")

            async def runs() -> int:
                """How many the scheduler knows."""
                page = await http.get(stack.at["status"] + "/status", headers=bearer(CLUSTER))
                return sum(count for by_class in page.json()["state"]["runs"].values() for count in by_class.values())

            for token in (ANN, BEN, TOKEN):
                assert (await http.get(stack.at["status"] + "/status", headers=bearer(token))).status_code == 401
            before = await runs()
            assert before == 2, "one name, two runs"
            assert (await http.delete("runs/main", headers=bearer(BEN))).status_code == 204
            async with asyncio.timeout(60):
                while await runs() != 1:
                    await asyncio.sleep(0.05)

        async with subagents.connect(stack.at["mcp"], caller="ben", token=ANN) as ann:
            handle = await ann.spawn("look one fact up", model=model)
            (run,) = await ann.wait([handle], seconds_max=60, progress=lambda *_: None)
            assert run.completed
        async with httpx.AsyncClient(trust_env=False, base_url=stack.at["mcp"].removesuffix("/mcp"), timeout=60) as http:
            seen = {token: handle in (await http.get("/status", headers=bearer(token))).text for token in (ANN, BEN, TOKEN)}
        assert seen == {ANN: True, BEN: False, TOKEN: True}
        journal = "".join(path.read_text() for path in (tmp_path / "state").rglob("*.jsonl"))
        assert '"caller":"ann"' in journal
        assert '"owner":"principal:ann"' in journal
        assert not [token for token in (TOKEN, CLUSTER, ANN, BEN) if token in journal + stack.logged()]
