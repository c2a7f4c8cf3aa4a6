"""An agent in a loop of its own, with the package `openai`."""

import json
import os
import sys
import uuid
from typing import Any

from openai import OpenAI

URL = os.environ.get("LUFTPAUSE_URL", "http://127.0.0.1:8080")
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "lookup",
            "description": "Look a fact up.",
            "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
        },
    }
]


def lookup(query: str = "") -> str:
    return f"On {query or 'that'}: tides are highest at new moon and at full moon."


def main(task: str) -> None:
    client = OpenAI(
        base_url=f"{URL}/v1",
        api_key=os.environ.get("LUFTPAUSE_TOKEN", "unused"),
        default_headers={
            "x-luftpause-run-id": f"example-{uuid.uuid4().hex}",
            "x-luftpause-caller": "examples",
            "x-luftpause-class": "interactive",
        },
    )
    model = os.environ.get("LUFTPAUSE_MODEL") or next(iter(client.models.list())).id
    messages: list[Any] = [{"role": "user", "content": task}]
    while True:
        said = client.chat.completions.create(model=model, messages=messages, tools=TOOLS).choices[0].message
        messages.append(said.model_dump(exclude_none=True))
        calls = [call for call in said.tool_calls or () if call.type == "function"]
        if not calls:
            print(said.content)
            return
        for call in calls:
            found = lookup(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": found})


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]) or "When are tides highest?")
