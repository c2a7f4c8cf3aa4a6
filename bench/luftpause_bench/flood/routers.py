"""What stands before the engines where there is no scheduler, and what would know too much?"""

from luftpause.scheduler.core.events import TurnClass
from luftpause_bench.flood.world import Turn, World
from luftpause_fakes.engine_model import Finished


class Direct:
    """
    A cache-aware router: a run's first turn goes where fewest turns are in flight, its others, and all of its sub-agents, where its prefix
    is. Holds nothing.
    """

    held = 0

    def start(self, world: World) -> None:
        self._world = world
        self._in_flight = dict.fromkeys(world.names, 0)
        self._homes: dict[str, str] = {}

    def ask(self, turn: Turn) -> None:
        name = self._homes.get(turn.run.id) or self._parents(turn) or min(self._in_flight, key=self._in_flight.__getitem__)
        self._homes[turn.run.id] = name
        self._in_flight[name] += 1
        self._world.send(turn, name)

    def _parents(self, turn: Turn) -> str | None:
        return self._homes.get(turn.run.parent.id) if turn.run.parent is not None else None

    def first(self, turn: Turn) -> None:
        del turn

    def finished(self, turn: Turn, output: Finished) -> None:
        del output
        self._in_flight[turn.replica] -= 1
        if not turn.tool or turn.run.dies:
            self._homes.pop(turn.run.id, None)


class LeastLoaded(Direct):
    """A router that does not look at prefixes: each turn goes where fewest are in flight."""

    def ask(self, turn: Turn) -> None:
        self._homes.pop(turn.run.id, None)
        super().ask(turn)

    def _parents(self, turn: Turn) -> str | None:
        del turn
        return None


class Residency:
    """
    Pure run-level residency, the other end: a run enters an engine only if all runs there fit with all they will ever need, and then never
    waits again. It knows how many turns a run will have, which nobody can.
    """

    FILL = 0.97

    def start(self, world: World) -> None:
        self._world = world
        self._residents: dict[str, dict[str, float]] = {name: {} for name in world.names}
        self._homes: dict[str, str] = {}
        self._waiting: list[Turn] = []

    @property
    def held(self) -> int:
        return len(self._waiting)

    def ask(self, turn: Turn) -> None:
        self._waiting.append(turn)
        self._release()

    def first(self, turn: Turn) -> None:
        del turn

    def finished(self, turn: Turn, output: Finished) -> None:
        del output
        if not turn.tool or turn.run.dies:
            del self._residents[self._homes.pop(turn.run.id)][turn.run.id]
        self._world.at(self._world.now, self._release)

    def _release(self) -> None:
        self._waiting.sort(key=lambda turn: (turn.run.id not in self._homes, turn.run.agents.turn_class, turn.ready))
        kept: list[Turn] = []
        for turn in self._waiting:
            name = self._homes.get(turn.run.id) or self._enters(turn)
            if name:
                self._world.send(turn, name)
            else:
                kept.append(turn)
        self._waiting = kept

    def _enters(self, turn: Turn) -> str:
        agents, workload = turn.run.agents, self._world.workload
        per_tool = agents.result_tokens + agents.call_tokens[1]
        need = turn.prompt_tokens + turn.run.tools_left * per_tool + workload.answer_tokens_max - workload.shared_tokens
        need = min(need, workload.context_tokens_max)
        best, best_sum = "", float("inf")
        for name, residents in self._residents.items():
            taken = sum(residents.values())
            room = workload.engine.kv_tokens * self.FILL - workload.shared_tokens - taken
            if agents.turn_class is TurnClass.BATCH:
                room -= need  # one interactive run may come
            if (room >= need or not residents) and taken < best_sum:
                best, best_sum = name, taken
        if best:
            self._residents[best][turn.run.id] = need
            self._homes[turn.run.id] = best
        return best
