"""An agent in a loop of its own, with the package `anthropic`: the proxy speaks the Messages API too."""

import os
import sys
import uuid
from typing import Any

from anthropic import Anthropic

URL = os.environ.get("LUFTPAUSE_URL", "http://127.0.0.1:8080")
TOOLS: Any = [
    {
        "name": "lookup",
        "description": "Look a fact up.",
        "input_schema": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    }
]


def lookup(query: object = "") -> str:
    return f"On {query or 'that'}: tides are highest at new moon and at full moon."


def main(task: str) -> None:
    client = Anthropic(
        base_url=URL,
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
        said = client.messages.create(model=model, max_tokens=512, messages=messages, tools=TOOLS)
        messages.append({"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in said.content]})
        calls = [block for block in said.content if block.type == "tool_use"]
        if not calls:
            print("".join(block.text for block in said.content if block.type == "text"))
            return
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": lookup(**call.input)} for call in calls]
        messages.append({"role": "user", "content": results})


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]) or "When are tides highest?")
