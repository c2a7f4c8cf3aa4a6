"""Do the scripted model endpoints, which real clients are tested against, follow their script?"""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

FOLDER = Path(__file__).resolve().parents[3] / "tools/clients"
SCRIPT = [
    {"tool": "spawn", "input": {"task": "t"}},
    {"tool": "await", "input": {"handles": ["$handle"]}},
    {"text": "finished: $last"},
]
HANDLE = "run_01ARZ3NDEKTSV4RRFFQ69G5FAV"


def endpoints() -> Any:
    spec = importlib.util.spec_from_file_location("client_endpoints", FOLDER / "endpoints.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def post(app: Any, path: str, body: dict[str, Any]) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://model") as client:
        answer = await client.post(path, json=body)
        assert answer.status_code == 200
        return answer


def result(text: str) -> dict[str, Any]:
    content = [{"type": "tool_result", "tool_use_id": "x", "content": [{"type": "text", "text": text}]}]
    return {"role": "user", "content": content}


@pytest.mark.parametrize(
    ("results", "block"),
    [
        ([], {"name": "mcp__luftpause__spawn", "input": {"task": "t"}}),
        ([f"{HANDLE} runs"], {"name": "mcp__luftpause__await", "input": {"handles": [HANDLE]}}),
        ([f"{HANDLE} runs", "1 of 1 done"], {"text": 'finished: [{"type": "text", "text": "1 of 1 done"}]'}),
    ],
)
async def test_the_messages_script_advances_with_each_tool_result(results: list[str], block: dict[str, Any]) -> None:
    body = {
        "model": "m",
        "tools": [{"name": "mcp__luftpause__spawn"}],
        "messages": [{"role": "user", "content": "go"}, *map(result, results)],
    }
    answer = (await post(endpoints().anthropic(SCRIPT), "/v1/messages", body)).json()
    assert block.items() <= answer["content"][0].items()


async def test_requests_without_luftpauses_tools_get_a_short_text() -> None:
    body = {"model": "m", "tools": [{"name": "Bash"}], "messages": [{"role": "user", "content": "title?"}]}
    answer = (await post(endpoints().anthropic(SCRIPT), "/v1/messages", body)).json()
    assert answer["content"] == [{"type": "text", "text": "ok"}]


async def test_streamed_messages_carry_the_whole_input() -> None:
    body = {"model": "m", "stream": True, "tools": [{"name": "mcp__luftpause__spawn"}], "messages": [{"role": "user", "content": "go"}]}
    text = (await post(endpoints().anthropic(SCRIPT), "/v1/messages", body)).text
    assert json.dumps(json.dumps({"task": "t"})) in text
    assert text.rstrip().endswith('data: {"type": "message_stop"}')


async def test_the_responses_script_names_codexs_namespace() -> None:
    output = {"type": "function_call_output", "call_id": "c", "output": f"{HANDLE} runs"}
    body = {"model": "m", "input": [output], "tools": [{"type": "namespace", "name": "mcp__luftpause", "tools": []}]}
    text = (await post(endpoints().responses(SCRIPT), "/v1/responses", body)).text
    done = next(line for line in text.splitlines() if '"response.completed"' in line and line.startswith("data"))
    (item,) = json.loads(done.removeprefix("data: "))["response"]["output"]
    assert (item["name"], item["namespace"], json.loads(item["arguments"])) == ("await", "mcp__luftpause", {"handles": [HANDLE]})


def test_a_client_that_is_not_installed_is_named_with_what_installs_it(tmp_path: Path) -> None:
    command = [sys.executable, str(FOLDER / "drive.py"), "claude", "--clients", str(tmp_path)]
    tried = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert tried.returncode == 3
    assert "run tools/clients/install.sh" in tried.stderr
