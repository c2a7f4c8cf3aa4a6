"""Whose turn is it, after a restart of the scheduler, if the agent sends no header at all?"""

import asyncio
import copy
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from tests.support.cluster import Cluster, cluster, reserve
from tests.support.tool_agents import Agent, Json, errors_of

ENGINE = ("--decode-seconds", "0.005", "--health-seconds", "0")
SUMMARY = "What was found so far: the notes agree on item 12. [calls=9 answer=8]"

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def whole(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Cluster]:
    async with cluster(tmp_path_factory.mktemp("identity"), engines=[ENGINE, ENGINE], scheduler={"reserve_seconds_max": 600}) as made:
        yield made


async def after_two_turns(whole: Cluster, *tasks: str) -> list[Agent]:
    """Headerless agents whose first two turns ended in tool calls."""
    agents = [Agent(whole.http, f"{task} [calls=9 answer=8]") for task in tasks]
    for number in (0, 1):
        await asyncio.gather(*(agent.turn(whole.url((number + n) % 2)) for n, agent in enumerate(agents)))
    assert errors_of(agents) == []
    assert [len(agent.runs) for agent in agents] == [1] * len(agents)
    assert all(turn.calls for agent in agents for turn in agent.turns)
    return agents


async def restarted(whole: Cluster) -> None:
    whole.scheduler.kill()
    await whole.scheduler.ended()
    await whole.start_scheduler()


def compacted(messages: list[Json], keep: int) -> list[Json]:
    """A history as harnesses cut it: another system prompt, a summary, and the newest `keep` messages."""
    return [{"role": "system", "content": "Go on."}, {"role": "user", "content": SUMMARY}, *(messages[-keep:] if keep else [])]


def copied(agent: Agent, messages: list[Json]) -> Agent:
    other = copy.copy(agent)
    other.messages, other.turns = list(messages), []
    return other


async def test_runs_are_recognised_by_their_tool_call_ids_through_either_dataplane_and_with_a_compacted_head(whole: Cluster) -> None:
    agents = await after_two_turns(whole, "Same.", "Other.", "Compacted.", "Orphan.", "Summary only.")
    same, other, compact, orphan, summary = agents
    before = {agent: (agent.turns[0].run, agent.turns[-1].replica) for agent in agents}
    kept = reserve(await whole.quiet())
    await restarted(whole)

    compact.messages = compacted(compact.messages, 2)
    orphan.messages = compacted(orphan.messages, 1)  # the tool's result without the call that it answers
    turns = await asyncio.gather(
        same.turn(whole.url(1)), other.turn(whole.url(1)), compact.turn(whole.url(0)), orphan.turn(whole.url(0))
    )  # the second turns of `same` and `compact` went through 1, the others through 0
    assert [turn.error for turn in turns] == [""] * 4
    assert [(turn.run, turn.replica) for turn in turns] == [before[agent] for agent in (same, other, compact, orphan)]
    # And on: what this scheduler has seen itself and what it was told are one.
    turns = await asyncio.gather(*(agent.turn(whole.url(0)) for agent in (same, other, compact, orphan)))
    assert [(turn.run, turn.replica) for turn in turns] == [before[agent] for agent in (same, other, compact, orphan)]

    # A summary without any id is a new run; the old one keeps its place.
    assert reserve(await whole.quiet()) == kept
    fresh = copied(summary, compacted(summary.messages, 0))
    turn = await fresh.turn(whole.url(0))
    assert not turn.error
    assert turn.run not in {run for run, _ in before.values()}
    assert reserve(await whole.quiet()) != kept, "the new one has a place too"


async def test_a_place_is_kept_for_the_pause_limit_and_no_longer_also_by_a_scheduler_that_starts_anew(whole: Cluster) -> None:
    (agent,) = await after_two_turns(whole, "Paused.")
    home = agent.turns[-1].replica
    before = reserve(await whole.quiet())
    assert before[home] > 0
    await restarted(whole)
    await whole.until(lambda seen: reserve(seen)[home] > 0)
    limit = whole.scheduler_settings["reserve_seconds_max"]
    whole.scheduler_settings["reserve_seconds_max"] = 1
    try:
        await restarted(whole)
        await whole.until(lambda seen: seen["events"].get("Resync") == 2 and set(reserve(seen).values()) == {0})
        await after_two_turns(whole, "Paused later.")
        await whole.until(lambda seen: set(reserve(seen).values()) == {0})
    finally:
        whole.scheduler_settings["reserve_seconds_max"] = limit
        await restarted(whole)


async def test_ids_that_engines_reuse_join_no_two_runs_and_each_is_still_recognised_by_its_head(whole: Cluster) -> None:
    for index in (0, 1):
        await whole.order(index, call_ids="count")
    try:
        agents = await after_two_turns(whole, "First.", "Second.", "Third.")
        assert {call["id"] for agent in agents for turn in agent.turns for call in turn.calls} == {"call_0"}
        runs = [agent.turns[0].run for agent in agents]
        assert len(set(runs)) == 3
        await restarted(whole)
        homeless = copied(agents[2], compacted(agents[2].messages, 2))
        turns = await asyncio.gather(agents[0].turn(whole.url(1)), agents[1].turn(whole.url(1)), homeless.turn(whole.url(0)))
        assert [turn.error for turn in turns] == [""] * 3
        assert [turn.run for turn in turns[:2]] == runs[:2]
        assert [turn.replica for turn in turns[:2]] == [agent.turns[1].replica for agent in agents[:2]]
        assert turns[2].run not in runs, "with another head `call_0` says nothing"
    finally:
        for index in (0, 1):
            await whole.order(index, call_ids=None)


async def test_answers_without_ids_never_make_one_run_of_two_conversations(whole: Cluster) -> None:
    for index in (0, 1):
        await whole.order(index, call_ids="none")
    try:
        agents = [Agent(whole.http, f"{task} [calls=9 answer=8]") for task in ("One.", "Two.")]
        await asyncio.gather(*(agent.turn(whole.url(n)) for n, agent in enumerate(agents)))
        assert [call["id"] for agent in agents for call in agent.turns[0].calls] == ["", ""]
        await restarted(whole)
        await asyncio.gather(*(agent.turn(whole.url(1 - n)) for n, agent in enumerate(agents)))
        assert errors_of(agents) == []
        assert not agents[0].runs & agents[1].runs
    finally:
        for index in (0, 1):
            await whole.order(index, call_ids=None)


async def test_a_stored_response_is_continued_where_it_is_stored_through_the_other_dataplane_too(whole: Cluster) -> None:
    firsts = [await respond(whole, 0, f"Remember {n}.") for n in range(2)]
    await restarted(whole)
    nexts = await asyncio.gather(*(respond(whole, 1, "What was it?", previous=response) for response, _, _ in firsts))
    assert [(run, replica) for _, run, replica in nexts] == [(run, replica) for _, run, replica in firsts]


async def respond(whole: Cluster, plane: int, text: str, *, previous: str | None = None) -> tuple[str, str, str]:
    """One turn of the Responses API; its id, run and replica."""
    body = {"model": "fake-1b", "input": f"{text} [calls=0 answer=4]", **({"previous_response_id": previous} if previous else {})}
    answer = await whole.http.post(f"{whole.url(plane)}/responses", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["id"], answer.headers["x-luftpause-run-id"], answer.headers["x-luftpause-replica"]
