"""How does a test watch what a client of OpenAI or Anthropic gets from the proxy: which run, which replica, which status?"""

from dataclasses import dataclass, field

import httpx2

from tests.support.cluster import Cluster, turns_in

MODEL = "fake-1b"
ENGINES = (("--speed", "20"), ("--speed", "20"))
TASK = "Look two things up and add two numbers. [calls=3 parallel=2 tool=lookup,add]"
TURNS = 3  # two calls at once, one call, the answer
FACT = "Tides are highest at new moon and at full moon."
PARAMETERS: dict[str, dict[str, object]] = {
    "lookup": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"], "additionalProperties": False},
    "add": {
        "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"],
        "additionalProperties": False,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Answered:
    path: str
    status: int
    run: str
    replica: str


@dataclass
class Watch:
    """Its HTTP clients note the head of each answer. They heed no proxy of the environment."""

    seen: list[Answered] = field(default_factory=list)

    def client(self) -> httpx2.Client:
        return httpx2.Client(trust_env=False, timeout=60, event_hooks={"response": [self._note]})

    def async_client(self) -> httpx2.AsyncClient:
        async def note(response: httpx2.Response) -> None:
            self._note(response)

        return httpx2.AsyncClient(trust_env=False, timeout=60, event_hooks={"response": [note]})

    def _note(self, response: httpx2.Response) -> None:
        named = response.headers
        self.seen.append(
            Answered(response.url.path, response.status_code, named.get("x-luftpause-run-id", ""), named.get("x-luftpause-replica", ""))
        )

    def one_run(self, turns: int) -> str:
        """The run of all answers so far, of which there are so many; all served where the first was."""
        assert [each.status for each in self.seen] == [200] * turns, self.seen
        assert len({(each.run, each.replica) for each in self.seen}) == 1, self.seen
        assert self.seen[0].run
        return self.seen[0].run


def used(name: str, arguments: dict[str, int]) -> str:
    """What the tools of these tests answer."""
    return FACT if name == "lookup" else f"The sum is {arguments['a'] + arguments['b']}."


async def nothing_left(whole: Cluster) -> None:
    """The scheduler counts no turn, held or in flight, and no engine has a request."""
    assert turns_in(await whole.quiet()) == 0
    for index in range(len(whole.engines)):
        engine = await whole.engine_at_rest(index)
        assert (engine["aborted"], engine["failed"], engine["bad"]) == (0, 0, 0)
        assert not [name for name in engine["headers"] if name.startswith(("x-luftpause", "x-api-key", "authorization"))]
