"""Which settings does each service have, and what are their defaults?

The governor's stand in `config_governor`. `kit.config_file` reads all from `luftpause.yaml` and the environment. `docs/configuration.md`
is generated from here.
"""

from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from luftpause.kit.config_base import BaseUrl, Count, File, Host, Name, Origin, Port, Seconds, Section, ServedHost, Url, UrlPath, Variable
from luftpause.kit.config_governor import PROFILES, GovernorConfig, ReplicaQuotaConfig
from luftpause.kit.header_names import folded

APIS_HELP: Final = (
    "Formats it serves: chat, completions, responses, messages, embeddings; not given: found out by requests that it can't act on."
)


class ReplicaConfig(Section):
    name: Name = Field(description="What logs, headers and the status page call it.")
    url: BaseUrl = Field(
        description="Base URL, with or without `/v1`; another version at its end (`/v4`, `/v1beta/openai`) stands in its place."
    )
    models: tuple[str, ...] | None = Field(
        default=None, description="Models it serves, `*` stands for anything in a name; not given: read from its `/v1/models`."
    )
    kind: Literal["generative", "classifier"] = Field(default="generative", description="A classifier takes `/v1/decide` only.")
    load: Literal["auto", "sglang", "vllm", "llamacpp", "none"] = Field(
        default="auto",
        description="Whose `/metrics` to read the load from; SGLang without them is asked for `/v1/loads`; `none` doesn't ask or cap.",
    )
    load_from: tuple[Url, ...] | None = Field(
        default=None,
        description="For a router: metrics pages whose loads are summed: its `/engine_metrics`, or each engine's (no path: `/metrics`). "
        "While one can't be read the load is unknown.",
    )
    health: UrlPath | None = Field(
        default="/health", description="Path of its health check; null: it has none and is healthy while it can be reached."
    )
    max_in_flight: Count | None = Field(default=None, description="Most turns at once, whatever its metrics say.")
    priority: Literal["off", "sglang", "vllm"] = Field(
        default="off",
        description="`guard`: it was started with priority scheduling, and turns carry their class in the sign of this engine: SGLang's "
        "(higher goes first; start it with `--disable-priority-preemption`) or vLLM's (lower goes first). A client's own makes way.",
    )
    api_key_env: Variable | None = Field(default=None, description="Environment variable that holds its API key.")
    apis: tuple[str, ...] | None = Field(default=None, description=APIS_HELP)
    quota: ReplicaQuotaConfig | None = Field(
        default=None, description="For a hosted API: whose allowance its turns use; a target's or a profile's name, or settings as below."
    )
    on_limit: Literal["hold", "pass"] = Field(
        default="hold",
        description="With a `quota`: after a 429 the turn waits for its window and goes again, or the client gets it, unchanged. "
        "Turns that come while the target is blocked wait with both.",
    )
    fallback: tuple[str, ...] = Field(
        default=(), description="With a `quota`: models, best first, that a run goes on with while the quota of its own is about to end."
    )

    @model_validator(mode="after")
    def _limits_have_a_quota(self) -> Self:
        lost = sorted(self.model_fields_set & {"on_limit", "fallback"})
        if self.quota is None and lost:
            raise ValueError(f"{', '.join(lost)} has no effect without `quota`; say whose allowance this replica uses")
        return self

    @field_validator("load_from")
    @classmethod
    def _pages_differ(cls, urls: tuple[str, ...] | None) -> tuple[str, ...] | None:
        pages = [url.rstrip("/").removesuffix("/metrics") for url in urls or ()]
        twice = sorted({page for page in pages if pages.count(page) > 1})
        if twice:
            raise ValueError(f"names {', '.join(twice)} twice; its load would count double")
        return urls


class SchedulerConfig(Section):
    host: Host = Field(default="127.0.0.1", description="Address to listen on, for gRPC and HTTP.")
    grpc_port: Port = Field(default=5000, description="Port of the session with the dataplanes (gRPC).")
    http_port: Port = Field(default=5001, description="Port of the status page and metrics (HTTP).")
    allowed_hosts: tuple[ServedHost, ...] = Field(
        default=("127.0.0.1", "localhost", "[::1]"), description="Host headers that HTTP serves (without port); `*` serves all."
    )
    policy: Literal["original", "guard"] = Field(
        default="guard",
        description="Which rules place turns: `guard` keeps room for the prefixes of runs that are about to come back; `original` looks at "
        "queues alone.",
    )
    batch_kv_share: Annotated[float, Field(gt=0, le=1)] = Field(
        default=1,
        description="`guard`: part of an engine's KV memory that batch may fill; 0.9: interactive is faster, batch slower.",
    )
    hold_bias: Annotated[float, Field(ge=0)] = Field(
        default=1, description="`guard`: above 1 prefixes are kept for slower tools, to the cost of batch; 0 keeps none."
    )
    dataplanes_expected: tuple[str, ...] = Field(default=(), description="After a start, wait for these before placing.")
    start_grace_seconds: Seconds = Field(
        default=3, description="After a start, place nothing for this long (or until all expected are here)."
    )
    probe_seconds: Annotated[float, Field(gt=0)] = Field(
        default=2, description="Health and load of each replica are asked this often; also the time-out."
    )
    load_unknown_cap: Annotated[int, Field(ge=1)] = Field(default=16, description="Cap of a replica whose metrics went missing.")
    burst_turns_max: Count | None = Field(
        default=None,
        description="By so many turns in flight may grow between two load reports; 0: unlimited; not given: max(8, reported running).",
    )
    cap_release: Literal["stepwise", "at_once"] = Field(default="stepwise", description="How a cap is lifted when the queue is gone.")
    stickiness: Literal["strict", "off"] = Field(default="strict", description="`off`: runs may move between replicas.")
    reserve_seconds_max: Seconds = Field(
        default=120, description="A paused interactive run keeps its place this long; 0: until it expires."
    )
    turn_timeout_seconds: Seconds = Field(default=600, description="A turn whose end was never reported is dropped after this.")
    turn_expiry: Literal["silent", "always"] = Field(
        default="silent", description="`always`: also turns that their dataplane still reports."
    )
    run_idle_seconds: Seconds = Field(default=1800, description="A run with no turn for this long is forgotten.")
    dataplane_lost_seconds: Seconds = Field(default=10, description="Turns of a lost dataplane stay counted this long.")
    tool_call_memory_seconds: Seconds = Field(default=1800, description="Tool-call ids are remembered this long.")
    inherit_seconds: Seconds = Field(default=30, description="A retry within this time keeps the place of its abandoned twin.")
    no_replica: Literal["hold", "refuse"] = Field(default="hold", description="When every replica of a model is unhealthy.")
    no_replica_seconds: Seconds = Field(default=10, description="`no_replica: refuse` answers 503 after this.")
    batch_min_share: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0, description="Part of the placements that batch gets at least, also while interactive turns are held."
    )
    hold_seconds_max: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="A turn held for longer is refused with 503; not given: it waits without limit."
    )
    held_turns_max: Count | None = Field(default=None, description="Most turns held at once; a further one is refused with 503.")
    held_turns_per_caller_max: Count | None = Field(
        default=None, description="Most turns of one caller held at once; a further one is refused with 429."
    )
    response_memory_hours: Annotated[float, Field(gt=0)] = Field(
        default=24, description="Which replica stores a response is remembered this long."
    )
    tool_call_sweep_seconds: Annotated[float, Field(gt=0)] = Field(default=60, description="Tool-call ids are swept this often.")
    probe_misses_max: Annotated[int, Field(ge=1)] = Field(
        default=3, description="A replica is unhealthy after this many probes in a row that timed out or brought a 5xx."
    )
    faults_max: Count = Field(
        default=3,
        description="After so many turns in a row that its engine failed (5xx, 401) a replica rests, if others serve its models; 0: never.",
    )
    fault_rest_seconds: Seconds = Field(default=10, description="It rests this long, however good its probes; then it is tried again.")
    record: File | None = Field(default=None, description="Append every event to logs in this directory, for `luftpause replay`.")
    record_clear: bool = Field(default=False, description="Record run ids and callers as they are, not as keyed hashes.")
    record_bytes_max: Annotated[int, Field(ge=1024)] = Field(
        default=2**30, description="A log that is longer is closed, and a new one begins with the state."
    )
    orders_max: Annotated[int, Field(ge=1)] = Field(
        default=50_000, description="Most orders waiting for one dataplane; beyond it its session ends."
    )
    hello_bytes_max: Annotated[int, Field(ge=1)] = Field(
        default=256 * 2**20, description="Longest memory of a dataplane that is taken when it connects."
    )
    inbox_events_max: Annotated[int, Field(ge=1)] = Field(
        default=20_000, description="Most facts waiting for a decision; beyond it no more are read."
    )
    probe_bytes_max: Annotated[int, Field(ge=1024)] = Field(
        default=8 * 2**20, description="Longest page (metrics, models) that a probe reads."
    )


CREDENTIALS: Final = frozenset({
    "authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key", "xi-api-key", "cookie",
})  # fmt: skip
OWN_TOKEN: Final = "x-luftpause-token"  # noqa: S105 - a header's name


class DataplaneConfig(Section):
    host: Host = Field(default="127.0.0.1", description="Address to listen on.")
    port: Port = Field(default=8080, description="Port of the proxy.")
    name: Name = Field(default="dataplane", description="Its name towards the scheduler; each dataplane needs its own.")
    scheduler: str = Field(default="127.0.0.1:5000", description="Where the scheduler's gRPC listens, host:port.")
    identity_key_env: Variable | None = Field(
        default=None, description="Environment variable with the key of the head digests; the same for all dataplanes."
    )
    allowed_hosts: tuple[ServedHost, ...] = Field(
        default=("127.0.0.1", "localhost", "[::1]"), description="Host headers that are served (without port); `*` serves all."
    )
    cors_origins: tuple[Origin, ...] = Field(
        default=(), description="Browser origins that may call; none: requests with an Origin get 403."
    )
    forward_headers: tuple[str, ...] = Field(
        default=(
            "accept", "content-type", "user-agent", "traceparent", "tracestate", "x-request-id",
            "openai-beta", "anthropic-version", "anthropic-beta", "openai-organization", "openai-project",
        ),
        description="Request headers that go on to an engine; everything else stays here.",
    )  # fmt: skip
    head_bytes_max: Annotated[int, Field(ge=1024)] = Field(default=65_536, description="Longest request or response head.")
    headers_max: Annotated[int, Field(ge=1)] = Field(default=128, description="Most header lines.")
    head_seconds_max: Seconds = Field(default=30, description="Longest time to send a request head.")
    max_body_bytes: Annotated[int, Field(ge=1)] = Field(default=64 * 2**20, description="Longest request body.")
    body_seconds_max: Seconds = Field(default=60, description="Longest time to send a request body.")
    held_bytes_max: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="Bodies that are read or wait take this much memory in all, per process; beyond it 503. "
        "Not given: 4 GiB, or half of the cgroup's limit if that is less.",
    )
    held_bytes_per_caller_max: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="The same for one caller; not given: no limit."
    )
    hold_keepalive_s: Seconds = Field(
        default=0,
        description="A held streaming turn gets its 200 after this long, and then an SSE comment each time it has passed; 0: never.",
    )
    idle_connection_seconds: Seconds = Field(default=75, description="An idle client connection is closed after this.")
    connect_seconds: Seconds = Field(default=2, description="Time-out of a connection to an engine.")
    failover_seconds: Seconds = Field(
        default=0.5, description="After an engine could not be reached another one must be found within this, else 502."
    )
    first_byte_seconds: Seconds = Field(default=600, description="An engine has this long to begin its answer.")
    engine_lost_seconds: Seconds = Field(
        default=15, description="A connection whose other machine acknowledges nothing for this long is lost; 0: as the system does."
    )
    idle_seconds: Seconds = Field(default=300, description="An answer may be silent this long.")
    half_close_seconds: Seconds = Field(default=60, description="A client that closed its side without a further sign is gone after this.")
    slow_reader_seconds: Seconds = Field(default=300, description="A client that takes no byte for this long is dropped.")
    linger_seconds: Seconds = Field(default=2, description="After an early error, what the client still sends is read this long.")
    idle_upstream_seconds: Seconds = Field(default=60, description="An idle connection to an engine is closed after this.")
    idle_upstreams_max: Count = Field(default=256, description="Most idle connections to one engine.")
    look_bytes_max: Count = Field(default=8192, description="So much of an answer is looked at before its head goes on, at most.")
    event_bytes_max: Annotated[int, Field(ge=1024)] = Field(
        default=262_144, description="A longer event of a stream passes unread: no first token, usage or tool call is seen in it."
    )
    answer_bytes_max: Annotated[int, Field(ge=1024)] = Field(
        default=4 * 2**20, description="A longer answer that is no stream passes unread."
    )
    stop_grace_seconds: Seconds = Field(default=30, description="After SIGTERM running streams have this long to finish.")
    usage: Literal["observe", "ask"] | None = Field(
        default=None,
        description="`ask` requests usage from the engine and hides it from clients that did not; not given: as the scheduler says, which "
        "wants it under `policy: guard` and of replicas with a `quota`. An engine that refuses `stream_options` is asked once only.",
    )
    on_busy: Literal["hold", "pass"] = Field(
        default="hold", description="An engine that says its queue is full: hold again, or pass its answer."
    )
    failover: bool = Field(default=True, description="Place a turn elsewhere when its replica can't be reached.")
    memory_seconds: Seconds = Field(default=1800, description="Runs are remembered this long for a scheduler that restarts.")
    memory_runs_max: Annotated[int, Field(ge=1)] = Field(default=100_000, description="Most runs remembered; the longest unseen go first.")
    reconnect_seconds: Seconds = Field(default=1, description="Pause before the next try when the scheduler can't be reached.")
    facts_max: Annotated[int, Field(ge=1)] = Field(
        default=50_000, description="Most facts waiting for the scheduler; beyond it the session starts anew."
    )

    @field_validator("forward_headers")
    @classmethod
    def _no_credentials(cls, headers: tuple[str, ...]) -> tuple[str, ...]:
        plain = {header: folded(header.encode()).decode() for header in headers}
        if found := sorted(header for header, name in plain.items() if name == OWN_TOKEN):
            raise ValueError(f"{', '.join(found)} may not go on to an engine: it holds luftpause's own token")
        if found := sorted(header for header, name in plain.items() if name in CREDENTIALS):
            raise ValueError(f"{', '.join(found)} may not go on to an engine: it gets the key that api_key_env of its replica names")
        return headers

    @field_validator("scheduler")
    @classmethod
    def _is_an_address(cls, address: str) -> str:
        host, _, port = address.rpartition(":")
        if not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 65_536:
            raise ValueError(f"{address!r} is no address; write host:port, without http://")
        return address


class UpstreamConfig(Section):
    """An MCP server whose tools sub-agents may use: over HTTP (`url`) or stdio (`command`)."""

    url: Url | None = Field(default=None, description="Address of a streamable HTTP server.")
    headers: dict[str, str] = Field(default={}, description="Headers sent to it; secrets by ${VAR}.")
    command: str | None = Field(default=None, description="Program of a stdio server.")
    args: tuple[str, ...] = Field(default=(), description="Its arguments.")
    env: dict[str, str] = Field(default={}, description="Its environment, beside PATH and HOME.")
    cwd: File | None = Field(default=None, description="Its working directory.")
    tool_seconds_max: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="Time-out of a call; not given: the runtime's."
    )
    calls_max: Annotated[int, Field(ge=1)] = Field(
        default=256, description="Most calls to it at once; others wait their turn, and their time-out begins after that."
    )

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.url is None) == (self.command is None):
            raise ValueError("give either `url` or `command`")
        return self


class RuntimeConfig(Section):
    host: Host = Field(default="127.0.0.1", description="Address to listen on.")
    port: Port = Field(default=7000, description="Port of the MCP server.")
    name: Annotated[str, StringConstraints(pattern=r"^([a-z0-9][a-z0-9-]{0,31})?$")] = Field(
        default="", description="Where several runtimes run: its name, which its handles then start with."
    )
    dataplane: BaseUrl = Field(default="http://127.0.0.1:8080", description="Base URL of the dataplane.")
    state: File = Field(default=Path("state"), description="State directory; holds runs.jsonl.")
    servers: dict[Name, UpstreamConfig] = Field(default={}, description="MCP servers whose tools sub-agents may use, by name.")
    default_model: str | None = Field(default=None, description="Model of a spawn that names none; not given: the only one served.")
    max_tokens: Count = Field(default=256, description="Longest answer of a turn; 0 leaves it to the engine.")
    max_tool_calls: Count = Field(default=8, description="Tool calls of a run; when spent the model must answer.")
    await_seconds: Seconds = Field(default=60, description="Default time-out of `await`.")
    await_seconds_max: Seconds = Field(default=600, description="Longest time-out of `await`.")
    turn_seconds_max: Seconds = Field(default=600, description="Time-out of one turn, queueing included.")
    answer_chars_max: Annotated[int, Field(ge=1000)] = Field(
        default=1_000_000, description="A longer answer of a turn, tool calls included, is broken off and fails the run."
    )
    turn_retries_max: Count = Field(
        default=6, description="Retries of a turn after a lost connection or 5xx; with growing pauses, six take 26 to 32 s."
    )
    tool_seconds_max: Annotated[float, Field(gt=0)] = Field(default=60, description="Time-out of a tool call.")
    tools_ready_seconds: Seconds = Field(
        default=10, description="After a start, runs wait this long for tool servers that are not connected yet."
    )
    tool_result_chars_max: Annotated[int, Field(ge=100)] = Field(default=16_000, description="Longer tool results are cut, and say so.")
    server_check_seconds: Annotated[float, Field(gt=0)] = Field(
        default=15, description="How often a connected MCP server is asked for its tools, to see changes and outages."
    )
    progress_seconds: Annotated[float, Field(gt=0)] = Field(default=5, description="How often a waiting call sends progress.")
    allowed_hosts: tuple[ServedHost, ...] = Field(
        default=("127.0.0.1", "localhost", "[::1]"), description="Host headers that are served (without port); `*` serves all."
    )
    allowed_origins: tuple[Origin, ...] = Field(
        default=(), description="Browser origins that may call and read the answers; localhost may call too."
    )
    status_origins: tuple[Origin, ...] | None = Field(
        default=None, description="Browser origins that may read `/status`; not given: the scheduler's page on localhost."
    )
    max_body_bytes: Annotated[int, Field(ge=1024)] = Field(default=4 * 2**20, description="Longest MCP request.")
    sessions_max: Annotated[int, Field(ge=1)] = Field(default=10_000, description="Most MCP sessions at once (older protocol).")
    session_idle_seconds: Annotated[float, Field(gt=0)] = Field(
        default=3600, description="An MCP session without a request for this long ends; its runs go on."
    )
    journal_reserve_bytes: Count = Field(default=16 * 2**20, description="Disk space kept for running runs when the disk is full.")
    journal_compact_bytes: Count = Field(
        default=4 * 2**20, description="The journal is compacted when it is longer and finished runs make up most of it."
    )
    runs_max: Annotated[int, Field(ge=1)] = Field(default=10_000, description="Most unfinished runs; a further spawn is refused.")
    retention_seconds: Seconds = Field(default=7 * 86_400, description="Results of finished runs are kept this long.")
    stop_grace_seconds: Seconds = Field(default=5, description="After SIGTERM open calls have this long to finish.")


class AuthConfig(Section):
    """Tokens come from LUFTPAUSE_TOKEN and LUFTPAUSE_CLUSTER_TOKEN, never from this file."""

    tokens_file: File | None = Field(default=None, description="File of `caller: token` lines; a caller with its own token can't be faked.")
    metrics_open: bool = Field(default=False, description="`/metrics` without a token, also where one is set.")
    tls_cert: File | None = Field(default=None, description="Certificate of the scheduler's gRPC, PEM.")
    tls_key: File | None = Field(default=None, description="Its private key, PEM.")
    tls_ca: File | None = Field(default=None, description="Certificates that dataplanes trust when they connect to the scheduler, PEM.")
    insecure: bool = Field(default=False, description="The scheduler's gRPC off loopback without TLS.")

    @model_validator(mode="after")
    def _cert_and_key(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("give `tls_cert` and `tls_key` together")
        return self


class LogConfig(Section):
    level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="Least level that is written.")


class Config(Section):
    """The whole of `luftpause.yaml`."""

    replicas: tuple[ReplicaConfig, ...] = Field(default=(), description="Endpoints that take turns.")
    scheduler: SchedulerConfig = Field(default=SchedulerConfig(), description="The scheduler.")
    dataplane: DataplaneConfig = Field(default=DataplaneConfig(), description="The proxy.")
    runtime: RuntimeConfig = Field(default=RuntimeConfig(), description="The MCP server.")
    governor: GovernorConfig = Field(default=GovernorConfig(), description="The rate governor: shared quotas of hosted APIs.")
    auth: AuthConfig = Field(default=AuthConfig(), description="Who may call.")
    log: LogConfig = Field(default=LogConfig(), description="Logs of all services.")

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [replica.name for replica in self.replicas]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two replicas are named {', '.join(twice)}; each needs a name of its own")
        return self

    @model_validator(mode="after")
    def _quotas_are_known(self) -> Self:
        targets = self.governor.targets
        for replica in self.replicas:
            quota = replica.quota
            if quota is None:
                continue
            if quota.target is not None and quota.target not in targets and quota.target not in PROFILES:
                known = ", ".join([*sorted(targets), *PROFILES])
                raise ValueError(f"replica {replica.name}: its quota {quota.target!r} is no target and no profile; known: {known}")
            if quota.target not in targets and replica.name in targets:
                raise ValueError(f"replica {replica.name} has a quota of its own, and so has a target of that name; rename one of them")
        return self
