"""An agent of LangGraph: a model and its tools in a circle."""

import os
import sys
import uuid
from typing import Any

import httpx
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from pydantic import SecretStr

URL = os.environ.get("LUFTPAUSE_URL", "http://127.0.0.1:8080")
TOKEN = os.environ.get("LUFTPAUSE_TOKEN", "unused")


@tool
def lookup(query: str = "") -> str:
    """Look a fact up."""
    return f"On {query or 'that'}: tides are highest at new moon and at full moon."


def main(task: str) -> None:
    models = httpx.get(f"{URL}/v1/models", headers={"authorization": f"Bearer {TOKEN}"}).json()
    model = ChatOpenAI(
        model=os.environ.get("LUFTPAUSE_MODEL") or models["data"][0]["id"],
        base_url=f"{URL}/v1",
        api_key=SecretStr(TOKEN),
        default_headers={
            "x-luftpause-run-id": f"example-{uuid.uuid4().hex}",
            "x-luftpause-caller": "examples",
            "x-luftpause-class": "interactive",
        },
    ).bind_tools([lookup])

    def think(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("think", think)
    graph.add_node("tools", ToolNode([lookup]))
    graph.add_edge(START, "think")
    graph.add_conditional_edges("think", tools_condition)
    graph.add_edge("tools", "think")
    print(graph.compile().invoke({"messages": [HumanMessage(task)]})["messages"][-1].content)


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]) or "When are tides highest?")
