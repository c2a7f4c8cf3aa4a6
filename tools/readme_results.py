"""Writes the results in README.md from the committed JSON of the benchmarks.

Run it after a whole run of a benchmark: `python tools/readme_results.py`. A test compares the section with what the JSON that it names
gives.
"""

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from luftpause_bench.registry import BENCHES

ROOT: Final = Path(__file__).resolve().parent.parent
README: Final = ROOT / "README.md"
RESULTS: Final = ROOT / "bench" / "results"
BEGIN, END = "<!-- results of:", "<!-- end of results -->"
SECTION: Final = re.compile(rf"{re.escape(BEGIN)}(?P<names>[^>]*)-->\n.*?{re.escape(END)}", re.DOTALL)
SHOWN: Final = {
    "direct": "router alone", "engine_priority": "engine priority", "original": "`original`", "guard": "`guard`",
    "guard_0.9": "`guard`, `batch_kv_share: 0.9`",
}  # fmt: skip
PRESSURES: Final = ("0.75", "1", "1.5", "2", "3")


def section(names: Sequence[str], results: Path = RESULTS) -> str:
    """What stands in README for these benchmarks, markers included."""
    documents = {name: json.loads((results / f"{name}.json").read_text()) for name in names}
    parts = [f"{BEGIN} {' '.join(names)} -->"]
    if "flood" in documents:
        parts.append(_headline(documents["flood"]))
    if "quota" in documents:
        parts.append(_incident(documents["quota"]))
    parts.append(_all(documents))
    return "\n\n".join(parts) + f"\n\n{END}"


def _headline(document: dict[str, Any]) -> str:
    """The published load at all memories: runs per minute, ± standard deviation over seeds."""
    seeds = document["seeds"]
    closely = document["parameters"].get("closely")
    more = f" ({closely['seeds']} in {closely['scene']}, where bounds are near)" if closely else ""
    told = (
        f"Simulated ({document['simulated']}), {len(seeds)} seeds from {seeds[0]}{more}: 48 batch and 4 interactive agents on two engines "
        "whose KV memory holds a third (x1) to all (x3) of what all runs need. Interactive and batch runs per minute, ± their deviation "
        "over seeds, and against the router alone:"
    )
    lines = [
        told,
        "",
        f"| KV memory | {' | '.join(SHOWN.values())} |",
        "|---" * (len(SHOWN) + 1) + "|",
    ]
    for kv in PRESSURES:
        rows = {row["variant"]: row for row in _rows(document, f"KV x{kv}, 48 batch")}
        lines.append(f"| x{kv} | {' | '.join(_cell(rows[variant]) for variant in SHOWN)} |")
    return "\n".join(lines)


def _incident(document: dict[str, Any]) -> str:
    """Who shares a quota how: what the critical ones got, and what it cost the provider."""
    (who,) = (
        table["title"] for table in document["tables"] if table["title"].startswith("github: ") and table["title"] != "github: requests"
    )
    how = {row["policy"]: row for row in _rows(document, "github: requests")}
    lines = [
        f"Simulated ({document['simulated']}): nine agents, two of them critical (P0), share 5,000 calls an hour and want 269 %:",
        "",
        "| client | P0 calls served, of those wanted | given up | p99 | goodput, % of quota | requests refused |",
        "|---|---|---|---|---|---|",
    ]
    for row in _rows(document, who):
        asked = how[row["policy"]]
        served, wanted, p99 = f"{row['served P0']:,.0f}", f"{row['calls P0 wanted']:,.0f}", f"{row['P0 s p99']:,.1f} s"
        refused = f"{asked['refused']:,.0f} of {asked['sent']:,.0f}"
        lines.append(f"| {row['policy']} | {served} of {wanted} | {row['P0 failed']:,.0f} | {p99} | {row['% goodput']:.1f} | {refused} |")
    return "\n".join(lines)


def _rows(document: dict[str, Any], title: str) -> list[dict[str, Any]]:
    """By `variant` and `<crowd> <column>`."""
    (table,) = (table for table in document["tables"] if table["title"] == title)
    keys = [" ".join(filter(None, (column["unit"], column["name"]))) for column in table["columns"]]
    return [dict(zip(keys, row, strict=True)) for row in table["rows"]]


def _cell(row: dict[str, Any]) -> str:
    interactive, batch = (f"{row[f'{crowd} runs/min']:.1f} ±{row[f'{crowd} ±']:.1f}" for crowd in ("interactive", "batch"))
    if row["variant"] == "direct":
        return f"{interactive}, {batch}"
    return f"{interactive} ({row['interactive × direct']:.2f}×), {batch} ({100 * (row['batch × direct'] - 1):+.0f} %)"


def _all(documents: dict[str, dict[str, Any]]) -> str:
    lines = ["| `luftpause bench` | what it shows | simulated | bounds held | missed |", "|---|---|---|---|---|"]
    for name, document in documents.items():
        held = [bound for bound in document["bounds"] if bound["held"]]
        missed = "; ".join(_missed(bound) for bound in document["bounds"] if not bound["held"]) or "–"
        about = BENCHES[name].about.rstrip(".")
        lines.append(f"| `{name}` | {about} | {document['simulated']} | {len(held)} of {len(document['bounds'])} | {missed} |")
    return "\n".join(lines)


def _missed(bound: dict[str, Any]) -> str:
    value = "nothing" if bound["value"] is None else f"{bound['value']:.3g}"
    return f"{bound['name']}: {value}, must be {bound['reach']}"


def present(results: Path = RESULTS) -> list[str]:
    """Benchmarks that have results, the headline first."""
    names = sorted(path.stem for path in results.glob("*.json") if path.stem in BENCHES)
    return sorted(names, key=lambda name: name != "flood")


def replaced(readme: str, names: Sequence[str], results: Path = RESULTS) -> str:
    made = section(names, results)
    text, count = SECTION.subn(lambda _: made, readme)
    if count != 1:
        raise SystemExit(f"README.md needs one place for results, from a line {BEGIN} … --> to a line {END}")
    return text


def named(readme: str) -> list[str]:
    """The benchmarks that README shows now."""
    found = SECTION.search(readme)
    return found["names"].split() if found else []


if __name__ == "__main__":
    README.write_text(replaced(README.read_text(), sys.argv[1:] or present()))
