"""The measurements of `run.py` as a block of `docs/BENCHMARKS.md`, and its pictures: medians, ranges, bars."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bars import bars_table
from cells import column, figures_of, names
from failover_page import FAULTS, failover_table
from measures_page import clients_section, consuming_section, fan_out_section, idle_section, workers_section
from plot import Line, Panel, picture
from throughput_page import INTRO, throughput_table

Row = Mapping[str, Any]
Results = Mapping[str, Any]

HEAD = """Each cell is the median over the rounds, with the range in brackets.
Only ratios within one run count; the machine has few cores and is shared with the clients, so identical repeats differ.
A measurement during which the host took over 3 % of the processors is repeated once, then dropped.
"""
SMOKE = "This is a smoke run: it shows that every measure works, and its figures mean nothing. No bar is judged.\n"
SECTIONS: Mapping[str, Callable[[Sequence[Row]], str]] = {
    "clients": clients_section,
    "consuming": consuming_section,
    "fan-out": fan_out_section,
    "idle": idle_section,
    "failover": failover_table,
    "workers": workers_section,
}
BESIDE_PEERS = ("throughput", "clients", "consuming")
PICTURES = {
    "throughput": "benchmark-throughput.svg",
    "clients": "benchmark-clients.svg",
    "failover": "benchmark-failover.svg",
}


def conditions(results: Results, part: str) -> Row | None:
    """Under which conditions a part was measured, even if nothing came of it; None if it was not."""
    about: Row | None = results.get("parts", {}).get(part)
    return about or (results.get("about") if results.get(part) else None)


def page(results: Results, parts_shown: Sequence[str] = tuple(SECTIONS)) -> str:
    """Bars and throughput, and those of the other parts that are wanted."""
    measured = [about for part in ("throughput", *SECTIONS) if (about := conditions(results, part))]
    if not measured:
        return HEAD
    machine = _machine(max(measured, key=_date))
    parts = [HEAD, f"Measured on {machine}.\n"]
    if any(about.get("smoke") for about in measured):
        parts.append(SMOKE)
    else:
        parts.append(bars_table(results))
    if conditions(results, "throughput"):
        parts += ["## Throughput\n", _facts(results, "throughput", machine), INTRO, _picture(results, "throughput")]
        parts.append(throughput_table(results.get("throughput", ())))
    for part, section in SECTIONS.items():
        if part in parts_shown and conditions(results, part):
            heading, _, rest = section(results.get(part, ())).partition("\n")
            parts += [f"{heading}\n", _facts(results, part, machine), rest.lstrip("\n"), _picture(results, part)]
    return "\n".join(part for part in parts if part)


def pictures(results: Results) -> dict[str, str]:
    """The SVGs by file name."""
    drawn = {}
    if rows := results.get("throughput"):
        panels = []
        for shape in names(rows, "shape"):
            parties = [party for party in names(rows, "party") if "echo" not in party]
            lines = [_line(party, figures_of(rows, shape=shape, party=party), "megabytes_per_s") for party in parties]
            panels.append(Panel(shape, lines))
        drawn[PICTURES["throughput"]] = picture("Closed loop, acks=all, three replicas", "MB/s", panels)
    if rows := results.get("clients"):
        lines = [_line(client, figures_of(rows, client=client), "records_per_s") for client in names(rows, "client")]
        drawn[PICTURES["clients"]] = picture("Full clients, 1 KiB records", "records/s", [Panel("acks=all", lines)])
    if rows := results.get("failover"):
        lines = [Line(_fault(row), row["gaps_ms"], True) for row in rows]
        panels = [Panel("gap per fault", lines)]
        drawn[PICTURES["failover"]] = picture("Silence when a leader is lost", "ms", panels, logarithmic=True)
    return drawn


def _line(name: str, figures: Sequence[Row], figure: str) -> Line:
    return Line(name, column(figures, figure), name.startswith(("Strandline", "strandline")))


def _fault(row: Row) -> str:
    return f"{FAULTS[row.get('fault', 'kill')].replace('`', '')}, session {row['session_timeout_ms']} ms"


def _picture(results: Results, part: str) -> str:
    name = PICTURES.get(part) if results.get(part) else None
    return f"![{part}: each round a dot, the bar at the median](img/{name})\n" if name else ""


def _date(about: Row) -> str:
    return str(about["date"])


def _machine(about: Row) -> str:
    facts = (
        f"{about['cpus']} CPUs, {about['kernel']}, Python {about['python']}, grpcio {about['grpcio']}, {about['nats']}"
    )
    return f"{facts}, everybody at nice {about['nice']}, {about.get('scheduler', 'normal')} scheduling"


def _facts(results: Results, part: str, machine: str) -> str:
    """When, at which commit, and what must be known about this part's rows; ``machine`` is what the page said above."""
    about = conditions(results, part)
    assert about is not None, part
    commit = f"commit {about['commit']}" if "commit" in about else "a commit that was not recorded"
    own = _machine(about)
    facts = [f"Measured {about['date']} at {commit}" + ("" if own == machine else f" on {own}")]
    if "load_before" in about:
        facts.append(f"load average {about['load_before']} before and {about['load_after']} after")
    if part == "throughput":
        facts.append(f"{about['rounds']} rounds, {about['run_s']:g} s each after {about['warm_s']:g} s of warming")
    absent = about.get("absent", {}) if part in BESIDE_PEERS else {}
    if part in BESIDE_PEERS and about.get("kafka_warm_s") and "Kafka" not in absent:
        facts.append(f"Kafka warmed for {about['kafka_warm_s']:g} s before the first round")
    if about.get("repeated") and part != "failover":
        dropped = about["dropped"]
        facts.append(f"{about['repeated']} measurements repeated for steal time, {len(dropped)} of them dropped")
        facts += [f"dropped: {name}" for name in dropped]
    if not about.get("complete", True):
        facts.append("**interrupted: not all rounds were measured**")
    facts += [f"{name} is absent: {why}" for name, why in absent.items()]
    return "; ".join([*facts, *about.get("notes", ())]) + ".\n"
