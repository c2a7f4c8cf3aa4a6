"""Which runs does a flood in virtual time consist of, as a trace that a load generator can replay?"""

from random import Random

from luftpause.cli.load_plan import Plan, Round
from luftpause_bench.flood.workload import Agents, Workload

MOST_RUNS_PER_AGENT_SECOND = 0.5  # an agent's run takes longer than two seconds


def plans(workload: Workload, seed: int) -> list[Plan]:
    """More runs than the agents of each crowd can do in time, drawn as `flood.world` draws them."""
    made: list[Plan] = []
    for crowd in workload.crowds:
        chance = Random(f"{seed} {crowd.name}")
        number = round(crowd.agents * workload.seconds * MOST_RUNS_PER_AGENT_SECOND)
        made += [_plan(workload, crowd, index, chance) for index in range(number)]
    return made


def _plan(workload: Workload, crowd: Agents, index: int, chance: Random) -> Plan:
    prompt = workload.shared_tokens + crowd.context(chance)
    tools = crowd.tool_calls(chance)
    rounds: list[Round] = []
    prefix = workload.shared_tokens
    for left in range(tools, -1, -1):
        low, high = crowd.call_tokens if left else crowd.final_tokens
        answer = max(2, min(workload.answer_tokens_max, chance.randint(low, high)))
        pause = crowd.pause(chance)[1] if left else 0.0
        rounds.append(Round(prefix, prompt - prefix, answer, 1000 * pause, workload.answer_tokens_max))
        prefix = prompt + answer
        prompt = prefix + crowd.result(chance)
    return Plan(f"{crowd.name}-{index}", tuple(rounds), turn_class=crowd.turn_class.name.lower())
