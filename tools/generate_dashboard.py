"""What does the Grafana dashboard show? Writes deploy/grafana/luftpause.json, or the file that is named."""

import json
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

FILE: Final = Path(__file__).parents[1] / "deploy" / "grafana" / "luftpause.json"
COLUMNS: Final = 24
HEIGHT: Final = 8
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
S, D, R, Q = "luftpause_scheduler_", "luftpause_dataplane_", "luftpause_runtime_", "luftpause_scheduler_quota_"
REPLICA: Final = '{replica=~"$replica"}'
TARGET: Final = '{target=~"$target"}'


class Query(NamedTuple):
    expr: str
    legend: str


class Panel(NamedTuple):
    """`width` of 24 columns; `unit` as Grafana names it; `stack`: the series add up to something."""

    title: str
    queries: tuple[Query, ...]
    unit: str = "short"
    width: int = 8
    kind: str = "timeseries"
    stack: bool = False
    about: str = ""


def per_second(metric: str, *labels: str, where: str = "") -> str:
    return f"sum by ({', '.join(labels)}) (rate({metric}{where}[$__rate_interval]))"


def quantiles(histogram: str, *labels: str, where: str = "", shares: tuple[float, ...] = (0.5, 0.95)) -> tuple[Query, ...]:
    """One query for each share, by these labels."""
    by = ", ".join(("le", *labels))
    legend = " ".join(f"{{{{{label}}}}}" for label in labels)
    return tuple(
        Query(
            f"histogram_quantile({share:g}, sum by ({by}) (rate({histogram}_bucket{where}[$__rate_interval])))",
            f"{legend} p{share * 100:g}".strip(),
        )
        for share in shares
    )


def one(expr: str, legend: str) -> tuple[Query, ...]:
    return (Query(expr, legend),)


def stat(title: str, expr: str, unit: str = "short", about: str = "") -> Panel:
    return Panel(title, one(expr, ""), unit, 4, "stat", about=about)


ROWS: Final[dict[str, tuple[Panel, ...]]] = {
    "At a glance": (
        stat("Replicas that are not healthy", f'sum({S}replica_health{{state!="healthy"}})'),
        stat("Turns in flight", f"sum({S}in_flight_turns)"),
        stat("Turns held", f"sum({S}held_turns)"),
        stat("Longest wait of a held turn", f"max({S}held_oldest_seconds)", "s"),
        stat("Runs of sub-agents", f'sum({R}runs{{state="running"}})'),
        stat("Tool calls that wait for a person", f"sum({R}pending_approvals)"),
    ),
    "Scheduler": (
        Panel("Held turns", one(f"sum by (class, reason) ({S}held_turns) > 0", "{{class}} {{reason}}"), stack=True),
        Panel(
            "In flight and cap",
            (
                Query(f"sum by (replica) ({S}in_flight_turns{REPLICA})", "{{replica}} in flight"),
                Query(f"max by (replica) ({S}replica_cap_turns{REPLICA}) < Inf", "{{replica}} cap"),
            ),
            about="A replica without a cap has no second line.",
        ),
        Panel("Time until a place", quantiles(f"{S}held_seconds", "class"), "s"),
        Panel("Turns by outcome", one(per_second(f"{S}turns_total", "class", "outcome"), "{{class}} {{outcome}}"), "reqps", stack=True),
        Panel("Placements", one(per_second(f"{S}placements_total", "replica", where=REPLICA), "{{replica}}"), "reqps", stack=True),
        Panel("Runs", one(f"sum by (phase, class) ({S}runs)", "{{class}} {{phase}}"), stack=True),
        Panel(
            "What engines report",
            (
                Query(f"sum by (replica) ({S}replica_running_requests{REPLICA})", "{{replica}} running"),
                Query(f"sum by (replica) ({S}replica_waiting_requests{REPLICA})", "{{replica}} waiting"),
            ),
        ),
        Panel("Health", one(f"max by (replica, state) ({S}replica_health{REPLICA}) == 1", "{{replica}} {{state}}")),
        Panel(
            "Prompt tokens from caches",
            one(
                f'sum by (replica) (rate({S}tokens_total{{type="cached", replica=~"$replica"}}[$__rate_interval]))'
                f' / sum by (replica) (rate({S}tokens_total{{type="prompt", replica=~"$replica"}}[$__rate_interval]))',
                "{{replica}}",
            ),
            "percentunit",
        ),
        Panel(
            "Moved, given back, refused",
            (
                Query(f"rate({S}run_moves_total[$__rate_interval])", "moved to another replica"),
                Query(per_second(f"{S}returns_total", "reason"), "given back: {{reason}}"),
                Query(per_second(f"{S}refusals_total", "code"), "refused: {{code}}"),
            ),
            "reqps",
        ),
        Panel(
            "Time per decision",
            quantiles(f"{S}decide_seconds", shares=(0.5, 0.99)),
            "s",
        ),
        Panel(
            "Waiting events and orders",
            (
                Query(f"sum({S}inbox_events)", "events"),
                Query(f"sum by (dataplane) ({S}outbox_orders)", "orders for {{dataplane}}"),
            ),
        ),
    ),
    "Dataplane": (
        Panel("First token, as clients see it", quantiles(f"{D}first_token_seconds", "class"), "s"),
        Panel("First token, from the place on", quantiles(f"{D}engine_first_token_seconds", "replica", where=REPLICA), "s"),
        Panel("Whole turns", quantiles(f"{D}turn_seconds", "class"), "s"),
        Panel("Turns by outcome", one(per_second(f"{D}turns_total", "api", "outcome"), "{{api}} {{outcome}}"), "reqps", stack=True),
        Panel("Answers by status", one(per_second(f"{D}responses_total", "code"), "{{code}}"), "reqps", stack=True),
        Panel("Tokens", one(per_second(f"{D}tokens_total", "type"), "{{type}}"), about="Per second; prompt holds cached."),
        Panel(
            "Connections",
            (
                Query(f"sum({D}client_connections)", "of clients"),
                Query(f"sum by (replica) ({D}upstream_connections{REPLICA})", "to {{replica}}"),
            ),
        ),
        Panel(
            "Connections that failed, turns given back",
            (
                Query(per_second(f"{D}upstream_connect_failures_total", "replica", where=REPLICA), "{{replica}} can't be reached"),
                Query(per_second(f"{D}returns_total", "replica", "reason", where=REPLICA), "{{replica}} {{reason}}"),
            ),
            "reqps",
        ),
        Panel(
            "Scheduler and event loop",
            (
                *quantiles(f"{D}loop_lag_seconds", shares=(0.99,)),
                Query(f'1 - min({D}session{{state="open"}})', "1: without a scheduler"),
            ),
            "s",
        ),
    ),
    "Runtime": (
        Panel("Runs", one(f'sum by (state) ({R}runs{{state=~"running|awaiting_approval"}})', "{{state}}"), stack=True),
        Panel("Runs that ended", one(per_second(f"{R}ended_runs_total", "class", "state"), "{{class}} {{state}}"), "reqps", stack=True),
        Panel("From spawn to end", quantiles(f"{R}run_seconds", "class"), "s"),
        Panel("Tool calls by outcome", one(per_second(f"{R}tool_calls_total", "outcome"), "{{outcome}}"), "reqps", stack=True),
        Panel("Tool calls' time", quantiles(f"{R}tool_seconds", "server"), "s"),
        Panel(
            "Turns, and tries without an answer",
            (
                Query(per_second(f"{R}turns_total", "outcome"), "{{outcome}}"),
                Query(per_second(f"{R}turn_failures_total", "reason"), "no answer: {{reason}}"),
            ),
            "reqps",
        ),
        Panel("Tokens", one(per_second(f"{R}tokens_total", "type"), "{{type}}"), about="Per second; prompt holds cached."),
        Panel(
            "Budgets used up, calls declined",
            (
                Query(per_second(f"{R}budgets_exceeded_total", "limit"), "{{limit}}"),
                Query(per_second(f"{R}approvals_total", "outcome"), "{{outcome}} by a person"),
            ),
            "reqps",
        ),
        Panel(
            "Tool servers and journal",
            (
                Query(f"1 - min by (server) ({R}tool_server_connected)", "1: {{server}} is away"),
                Query(f"max({R}journal_full)", "1: the disk is full"),
            ),
        ),
    ),
    "Quotas": (
        Panel(
            "What nobody has of a limit",
            one(f"min by (target, scope) ({Q}remaining_ratio{TARGET})", "{{target}} {{scope}}"),
            "percentunit",
        ),
        Panel(
            "Red and amber lights",
            one(f'max by (target, scope, light) ({Q}light{{target=~"$target", light!="green"}}) == 1', "{{target}} {{scope}} {{light}}"),
        ),
        Panel(
            "Breakers that are not closed",
            one(f'max by (target, mode) ({Q}breaker{{target=~"$target", mode!="closed"}}) == 1', "{{target}} {{mode}}"),
        ),
        Panel("Calls that wait", one(f"sum by (target, class) ({Q}waiting{TARGET})", "{{target}} {{class}}"), stack=True),
        Panel(
            "Calls let out",
            one(per_second(f"{Q}grants_total", "target", "class", where=TARGET), "{{target}} {{class}}"),
            "reqps",
            stack=True,
        ),
        Panel("How long they waited", quantiles(f"{Q}wait_seconds", "class", where=TARGET), "s"),
        Panel("Calls that are out", one(f"sum by (target, class) ({Q}leases{TARGET})", "{{target}} {{class}}"), stack=True),
        Panel(
            "What went wrong",
            (
                Query(per_second(f"{Q}blocks_total", "target", where=TARGET), "{{target}} blocked by its provider"),
                Query(per_second(f"{Q}refusals_total", "target", "code", where=TARGET), "{{target}} {{code}}"),
                Query(per_second(f"{Q}expired_leases_total", "target", where=TARGET), "{{target}} lease not renewed"),
            ),
            "reqps",
        ),
        Panel(
            "How far load is cut",
            (
                Query(f"max by (target) ({Q}level{TARGET})", "{{target}} level"),
                Query(f"max by (target) ({Q}cascade{TARGET})", "{{target}} one at a time"),
                Query(f'max({Q}store_mode{{mode!="up"}})', "1: the shared store is not up"),
            ),
        ),
    ),
    "Processes": (
        Panel(
            "Processor time",
            one('rate(process_cpu_seconds_total{job=~"$job"}[$__rate_interval])', "{{job}} {{instance}}"),
            "percentunit",
        ),
        Panel("Memory", one('process_resident_memory_bytes{job=~"$job"}', "{{job}} {{instance}}"), "bytes"),
        Panel("Open files", one('process_open_fds{job=~"$job"}', "{{job}} {{instance}}")),
    ),
}


def dashboard() -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS.items():
        panels.append({
            "id": len(panels) + 1,
            "type": "row",
            "title": title,
            "collapsed": False,
            "gridPos": _at(0, top, COLUMNS, 1),
            "panels": [],
        })
        top, left = top + 1, 0
        height = HEIGHT if row[0].kind != "stat" else HEIGHT // 2
        for panel in row:
            if left + panel.width > COLUMNS:
                top, left = top + height, 0
            panels.append(_panel(panel, len(panels) + 1, _at(left, top, panel.width, height)))
            left += panel.width
        top += height
    return {
        "uid": "luftpause",
        "title": "luftpause",
        "description": "Turns, runs and quotas. Made by tools/generate_dashboard.py.",
        "tags": ["luftpause"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": _variables()},
        "annotations": {"list": []},
        "links": [],
        "panels": panels,
    }


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + index), "datasource": SOURCE, "expr": query.expr, "legendFormat": query.legend, "range": True}
        for index, query in enumerate(panel.queries)
    ]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        **({"description": panel.about} if panel.about else {}),
        "datasource": SOURCE,
        "gridPos": place,
        "targets": targets,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, **_drawn(panel)}, "overrides": []},
        "options": _options(panel),
    }


def _drawn(panel: Panel) -> dict[str, Any]:
    if panel.kind == "stat":
        return {"color": {"mode": "fixed", "fixedColor": "text"}, "noValue": "0"}
    return {
        "custom": {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 25 if panel.stack else 0,
            "stacking": {"mode": "normal" if panel.stack else "none", "group": "A"},
            "showPoints": "never",
        }
    }


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}, "graphMode": "area", "colorMode": "value"}
    return {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True}, "tooltip": {"mode": "multi", "sort": "desc"}}


def _variables() -> list[dict[str, Any]]:
    return [
        {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "current": {}, "hide": 0},
        _values("replica", "Replica", f"{S}replica_health"),
        _values("target", "Quota target", f"{Q}remaining_ratio"),
        _values("job", "Job", "luftpause_scheduler_build_info or luftpause_dataplane_build_info or luftpause_runtime_build_info"),
    ]


def _values(label: str, title: str, of: str) -> dict[str, Any]:
    query = f"label_values({of}, {label})" if " " not in of else f"query_result(count by ({label}) ({of}))"
    return {
        "name": label,
        "label": title,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": label},
        "regex": "" if " " not in of else f'/{label}="([^"]+)"/',
        "refresh": 2,
        "includeAll": True,
        "allValue": ".*" if " " not in of else None,  # None: those that there are; other jobs have processes too
        "multi": True,
        "sort": 1,
        "current": {"text": "All", "value": "$__all"},
    }


def _at(left: int, top: int, width: int, height: int) -> dict[str, int]:
    return {"x": left, "y": top, "w": width, "h": height}


def main() -> None:
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(dashboard(), indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
