"""An agent of OpenAI's Agents SDK; its loop is the SDK's."""

import asyncio
import os
import sys
import uuid

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

URL = os.environ.get("LUFTPAUSE_URL", "http://127.0.0.1:8080")


@function_tool
def lookup(query: str = "") -> str:
    """Look a fact up."""
    return f"On {query or 'that'}: tides are highest at new moon and at full moon."


async def main(task: str) -> None:
    set_tracing_disabled(disabled=True)  # else the SDK sends traces to OpenAI
    client = AsyncOpenAI(
        base_url=f"{URL}/v1",
        api_key=os.environ.get("LUFTPAUSE_TOKEN", "unused"),
        default_headers={
            "x-luftpause-run-id": f"example-{uuid.uuid4().hex}",
            "x-luftpause-caller": "examples",
            "x-luftpause-class": "interactive",
        },
    )
    async with client:
        model = os.environ.get("LUFTPAUSE_MODEL") or (await client.models.list()).data[0].id
        agent = Agent(
            name="Researcher",
            instructions="Look facts up before you answer.",
            model=OpenAIChatCompletionsModel(model=model, openai_client=client),
            tools=[lookup],
        )
        print((await Runner.run(agent, task)).final_output)


if __name__ == "__main__":
    asyncio.run(main(" ".join(sys.argv[1:]) or "When are tides highest?"))
