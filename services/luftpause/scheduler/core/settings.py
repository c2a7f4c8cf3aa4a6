"""What can be tuned in the scheduler's core?"""

from typing import Literal

from msgspec import Struct

EVERYBODY_ELSE = "*"


class CallerPriority(Struct, frozen=True, gc=False):
    """
    How urgent a caller's turns are for quotas; `*`: everybody's who is not named.

    `priority` None: as the class says. `may_claim`: it may say that a turn is more urgent than that.
    """

    caller: str
    priority: int | None = None
    may_claim: bool = False


NOBODY = CallerPriority("")


class Settings(Struct, frozen=True, gc=False):
    """Every tunable of the core. The first block has the names and, but for the policy, the defaults of `kit.config.SchedulerConfig`."""

    policy: str = "original"
    dataplanes_expected: tuple[str, ...] = ()
    start_grace_seconds: float = 3.0
    probe_seconds: float = 2.0
    load_unknown_cap: int = 16
    burst_turns_max: int | None = None
    cap_release: Literal["stepwise", "at_once"] = "stepwise"
    stickiness: Literal["strict", "off"] = "strict"
    reserve_seconds_max: float = 120.0
    turn_timeout_seconds: float = 600.0
    turn_expiry: Literal["silent", "always"] = "silent"
    run_idle_seconds: float = 1800.0
    dataplane_lost_seconds: float = 10.0
    tool_call_memory_seconds: float = 1800.0
    inherit_seconds: float = 30.0
    no_replica: Literal["hold", "refuse"] = "hold"
    no_replica_seconds: float = 10.0
    batch_min_share: float = 0.0
    hold_seconds_max: float | None = None
    held_turns_max: int | None = None
    held_turns_per_caller_max: int | None = None
    response_memory_hours: float = 24.0
    tool_call_sweep_seconds: float = 60.0
    probe_misses_max: int = 3
    faults_max: int = 3
    fault_rest_seconds: float = 10.0
    batch_kv_share: float = 1.0
    hold_bias: float = 1.0
    quota_hold_seconds_max: float = 120.0
    callers: tuple[CallerPriority, ...] = ()

    identity_grace_seconds: float = 0.02
    identity_recent_seconds: float = 1.0  # another dataplane counts as active this long after its last turn in flight
    load_stale_periods: float = 3.0
    ids_per_run_max: int = 256
    runs_per_id_max: int = 4  # beyond it an id is known to be shared, whoever carried it
    branches_per_lane_max: int = 64
    twins_per_key_max: int = 64
    places_per_step_max: int = 64
    asked_turns_max: int = 16  # of a queue whose first turn a replica does not admit
    expiries_per_step_max: int = 1000
    records_per_step_max: int = 2000  # of a Hello: runs and tool-call ids
    ended_runs_max: int = 100_000  # remembered, lest a Hello bring them back
    responses_max: int = 200_000  # of which it is remembered where they are stored; about 600 bytes each

    @property
    def response_memory_seconds(self) -> float:
        return self.response_memory_hours * 3600
