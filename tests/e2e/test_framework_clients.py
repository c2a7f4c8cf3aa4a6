"""Do agents written with OpenAI's Agents SDK and with LangGraph finish through the proxy, and is each of their runs one run?

Both are imported in the tests: that takes seconds, which a run of other tests should not pay.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import openai
import pytest
import pytest_asyncio

from tests.support.cluster import Cluster
from tests.support.proxied import FACT, MODEL, TASK, TURNS, Watch, nothing_left

pytestmark = [pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="package")]


def lookup(query: str) -> str:
    """Look a fact up."""
    assert query
    return FACT


def add(a: int, b: int) -> str:
    """Add two numbers."""
    return f"The sum is {a + b}."


def checked(answer: Any) -> None:
    assert FACT in answer
    assert "The sum is" in answer


# ---- OpenAI Agents SDK --------------------------------------------------------------------------------------------------


@pytest_asyncio.fixture(loop_scope="package")
async def watched(proxy: Cluster) -> AsyncGenerator[tuple[Watch, openai.AsyncOpenAI]]:
    watch = Watch()
    client = openai.AsyncOpenAI(base_url=proxy.url(), api_key="unused", max_retries=0, http_client=watch.async_client())
    async with client:
        yield watch, client


def agent_of(api: str, client: openai.AsyncOpenAI, **more: Any) -> Any:
    from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, function_tool, set_tracing_disabled

    set_tracing_disabled(disabled=True)
    kind = {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}[api]
    tools = [function_tool(lookup), function_tool(add), *more.pop("tools", [])]
    given = {"name": "Researcher", "instructions": "Be brief.", "model": kind(model=MODEL, openai_client=client), "tools": tools}
    return Agent(**(given | more))


APIS = pytest.mark.parametrize("api", ["chat", "responses"])


@APIS
async def test_an_agent_of_the_agents_sdk_is_one_run(proxy: Cluster, watched: tuple[Watch, openai.AsyncOpenAI], api: str) -> None:
    from agents import Runner

    watch, client = watched
    checked((await Runner.run(agent_of(api, client), TASK)).final_output)
    watch.one_run(TURNS)
    await nothing_left(proxy)


@APIS
async def test_a_streamed_agent_of_the_agents_sdk_is_one_run(proxy: Cluster, watched: tuple[Watch, openai.AsyncOpenAI], api: str) -> None:
    from agents import Runner

    watch, client = watched
    streaming = Runner.run_streamed(agent_of(api, client), TASK)
    kinds = [event.type async for event in streaming.stream_events()]
    assert kinds.count("raw_response_event") > TURNS
    checked(streaming.final_output)
    watch.one_run(TURNS)
    await nothing_left(proxy)


async def test_an_agent_whose_conversation_the_engine_stores_is_one_run(proxy: Cluster, watched: tuple[Watch, openai.AsyncOpenAI]) -> None:
    from agents import Runner

    watch, client = watched
    first = await Runner.run(agent_of("responses", client), TASK, auto_previous_response_id=True)
    checked(first.final_output)
    watch.one_run(TURNS)
    again = await Runner.run(agent_of("responses", client), "And lowest? [calls=0]", previous_response_id=first.last_response_id)
    assert again.final_output
    watch.one_run(TURNS + 1)
    await nothing_left(proxy)


@APIS
async def test_an_agent_that_is_a_tool_is_a_run_of_its_own(proxy: Cluster, watched: tuple[Watch, openai.AsyncOpenAI], api: str) -> None:
    from agents import Runner

    watch, client = watched
    helper = agent_of(api, client, name="Helper").as_tool("ask_helper", "Ask the helper.")
    task = 'Delegate. [calls=2 tool=ask_helper args={"input":"Look it up. [calls=1 tool=lookup]"}]'
    answer = (await Runner.run(agent_of(api, client, name="Boss", tools=[helper]), task)).final_output
    assert FACT in answer
    runs = [each.run for each in watch.seen]
    boss, one, other = runs[0], runs[1], runs[4]
    assert runs == [boss, one, one, boss, other, other, boss]
    assert len({boss, one, other}) == 3
    await nothing_left(proxy)


@APIS
async def test_a_handoff_stays_the_same_run(proxy: Cluster, watched: tuple[Watch, openai.AsyncOpenAI], api: str) -> None:
    """The conversation goes on with another system prompt: its tool-call ids tell whose it is."""
    from agents import Runner

    watch, client = watched
    expert = agent_of(api, client, name="Expert", instructions="You are the expert.")
    first = agent_of(api, client, name="Front", handoffs=[expert])
    result = await Runner.run(first, "Ask the expert. [calls=2 tool=transfer_to_expert,lookup]")
    assert result.last_agent is expert
    assert FACT in result.final_output
    watch.one_run(3)
    await nothing_left(proxy)


# ---- LangGraph ----------------------------------------------------------------------------------------------------------


def graph_of(proxy: Cluster, watch: Watch, *, responses: bool, **more: Any) -> Any:
    """The agent of LangGraph's introduction: a model with two tools, in a circle."""
    from langchain_core.runnables import RunnableLambda
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition

    tools = [tool(lookup), tool(add)]
    model = ChatOpenAI(
        model=MODEL, base_url=proxy.url(), api_key="unused", max_retries=0, use_responses_api=responses,
        http_client=watch.client(), http_async_client=watch.async_client(), **more,
    ).bind_tools(tools)  # fmt: skip

    def turn(state: Any) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    async def turn_async(state: Any) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", RunnableLambda(turn, turn_async))
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile()


ASKED = {"messages": [("system", "Be brief."), ("user", TASK)]}


@pytest.mark.parametrize("responses", [False, True], ids=["chat", "responses"])
@pytest.mark.parametrize("way", ["sync", "async", "streamed"])
async def test_an_agent_of_langgraph_is_one_run(proxy: Cluster, way: str, *, responses: bool) -> None:
    watch = Watch()
    graph = graph_of(proxy, watch, responses=responses)
    match way:
        case "sync":
            final = await asyncio.to_thread(graph.invoke, ASKED)
        case "async":
            final = await graph.ainvoke(ASKED)
        case _:
            chunks = 0
            async for mode, part in graph.astream(ASKED, stream_mode=["messages", "values"]):
                chunks += mode == "messages"
                final = part if mode == "values" else {}
            assert chunks > 3 * TURNS
    checked(final["messages"][-1].text)
    watch.one_run(TURNS)
    await nothing_left(proxy)
