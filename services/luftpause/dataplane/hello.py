"""How does the memory become the parts of a Hello, each at most 256 KiB?"""

from collections import deque
from collections.abc import Iterator
from typing import Final

from luftpause.dataplane import wire
from luftpause.dataplane.memory import InFlight, Memory, Run
from luftpause.kit.protocol import BATCH_BYTES
from luftpause.kit.wire.v1 import scheduler_pb2 as pb

PART_BYTES: Final = BATCH_BYTES  # a part is closed when it reaches this: writing one takes a few milliseconds of the loop
PART_BYTES_MAX: Final = 256 * 1024  # one run that is longer than `PART_BYTES` travels alone
_FRAME_BYTES: Final = 8  # tag and length of a record within a part


class Snapshot:
    """The memory as it was at `now`, written out bit by bit: a run that changes meanwhile is written just before it does.

    One at a time per memory; `close` ends it.
    """

    def __init__(self, memory: Memory, now: float, *, part_bytes: int = PART_BYTES, part_bytes_max: int = PART_BYTES_MAX) -> None:
        self._memory = memory
        self._now = now
        self._part_bytes = part_bytes
        self._record_bytes_max = part_bytes_max - _FRAME_BYTES
        self._left = dict(memory.runs.items())
        self._written: deque[pb.RunRecord] = deque()
        self._turns = deque(turn_record(turn, record, now) for turn, record in memory.in_flight.items())
        memory.watcher = self

    def close(self) -> None:
        if self._memory.watcher is self:
            self._memory.watcher = None

    def before_change(self, key: str, run: Run) -> None:
        if self._left.pop(key, None) is not None:
            self._written.append(self._write(run))

    def parts(self) -> Iterator[pb.HelloPart]:
        """Runs and turns, greedily filled; the iterator may be left alone between two parts."""
        part, size = pb.HelloPart(), 0
        while (record := self._next()) is not None:
            length = record.ByteSize() + _FRAME_BYTES
            if size + length > self._part_bytes and size:
                yield part
                part, size = pb.HelloPart(), 0
            if isinstance(record, pb.RunRecord):
                part.runs.append(record)
            else:
                part.turns.append(record)
            size += length
        if size:
            yield part

    def _next(self) -> pb.RunRecord | pb.TurnRecord | None:
        if self._turns:
            return self._turns.popleft()
        if self._written:
            return self._written.popleft()
        if self._left:
            return self._write(self._left.popitem()[1])
        return None

    def _write(self, run: Run) -> pb.RunRecord:
        return run_record(run, self._now, seconds=self._memory.seconds, bytes_max=self._record_bytes_max)


def turn_record(turn: str, record: InFlight, now: float) -> pb.TurnRecord:
    return pb.TurnRecord(
        turn=turn,
        attempt=record.attempt,
        run=record.run,
        model=record.model,
        replica=record.replica,
        turn_seq=record.turn_seq,
        kind=wire.KINDS[record.kind],
        turn_class=wire.turn_class(record.turn_class),
        caller=record.caller,
        age_ms=wire.age_ms(now, record.placed),
        first_token=record.first_token,
        principal=record.principal,
        head_digest=record.head_digest,
        fence=record.fence,
    )


def run_record(run: Run, now: float, *, seconds: float, bytes_max: int) -> pb.RunRecord:
    """Ids older than `seconds` are left out; a record that is longer than `bytes_max` loses its oldest ids."""
    record = pb.RunRecord(
        run=run.id,
        principal=run.principal,
        turn_class=wire.turn_class(run.turn_class),
        caller=run.caller,
        parent=run.parent,
        turn_seq=run.turn_seq,
        age_ms=wire.age_ms(now, run.seen),
        placed_age_ms=wire.age_ms(now, run.placed),
        lanes=[
            pb.LaneRecord(
                model=model,
                home=lane.home,
                turn_seq=lane.turn_seq,
                paused=[pb.PausedBranch(tool_call_ids=each.ids, age_ms=wire.age_ms(now, each.since)) for each in lane.paused],
                idle_age_ms=wire.age_ms(now, lane.ended),
            )
            for model, lane in run.lanes.items()
        ],
        tool_calls=[
            pb.ToolCallRecord(id=each, head_digest=digest, age_ms=wire.age_ms(now, seen))
            for each, (digest, seen) in run.tool_calls.items()
            if now - seen < seconds
        ],
        responses=[
            pb.ResponseRecord(id=each, replica=replica, age_ms=wire.age_ms(now, seen))
            for each, (replica, seen) in run.responses.items()
            if now - seen < seconds
        ],
        fell=run.fell,
    )
    while record.ByteSize() > bytes_max and _halve(record):
        pass
    return record


def _halve(record: pb.RunRecord) -> bool:
    """Drop the older half of what there is most of; False: nothing is left to drop."""
    lists = [record.tool_calls, record.responses, *(lane.paused for lane in record.lanes)]
    longest = max(lists, key=len)
    if longest:
        del longest[: (len(longest) + 1) // 2]
        return True
    if record.lanes:
        del record.lanes[0]
        return True
    return False
