"""The measurements of `make bench` as blocks of pages: bars and tables in docs/BENCHMARKS.md, the sizing in
docs/OPERATIONS.md, and a sentence in README.md and docs/COMPARISON.md."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from bars import (
    BARS,
    KAFKA,
    MET,
    MISSED,
    NATS,
    OURS,
    PARTIES,
    SHAPES,
    SYNCED,
    Results,
    Row,
    all_cpu,
    having,
    ratios,
    speed,
)

HEAD = """Each cell is the median over the rounds, with the range in brackets.
Only ratios within one run count; the machine has few cores and is shared with the clients, so identical repeats differ.
A measurement during which the host took over 3 % of the processors is repeated once, then dropped.
"""
SMOKE = "This is a smoke run: it shows that every measure works, and its figures mean nothing. No bar is judged.\n"
THROUGHPUT = """All parties run on one machine in interleaved rounds: each measures every party once per shape, in turn.
A closed loop keeps `window` requests outstanding; acks=all with three replicas for us and Kafka, R3 on file for NATS.
Before each measurement the disk is idle, and free memory is filled with pages of the cache, as after a day's work.
NATS and Kafka have their defaults, without fsync per message: compare with `page-cache`, `sync: always` with `fsync`.
Kafka's client is its own Java producer, one record per batch, one process for all measurements.
The stripped pipeline is our stack with nothing of a product in it (`tests/bench/party_stripped.py`).
"""
CLIENTS = """Records of 1 KiB to six partitions with three replicas, acks=all, idempotent, batches of at most 256 KiB, \
linger 5 ms, five requests in flight, as fast as the client takes them; until the last acknowledgement. Then one \
consumer reads them all, from the page cache.
`page-cache` and `fsync` are what our acknowledgement means; Kafka's means the page cache.
"""
FAILOVER = """Six partitions under the load of one producer; another has one small record under way at a time, \
acks=all, to the partition whose leader is lost.
The silence that it sees: from the last acknowledgement before the fault to the first acknowledgement of a record that \
was sent after it.
The closed connection tells the controller of a killed process at once. A process that stands still (SIGSTOP) and an \
address from which nothing arrives any more are known only by the end of the session.
No gap was left out for steal time.
"""
FAULTS = {"kill": "`kill -9`", "stop": "SIGSTOP", "vanish": "vanished address"}
BESIDE_PEERS = ("throughput", "clients")
VERDICTS = {True: MET, False: MISSED, None: ""}
SIZES = ("groups", "transactions", "metadata", "moves", "rules")
"""Parts that are one table: rows of a figure, what was wanted of it, what was measured, and whether that is met."""


def span(values: Sequence[float], digits: int = 1) -> str:
    """`median [lowest-highest]`, or a dash."""
    if not values:
        return "–"
    return f"{median(values):.{digits}f} [{min(values):.{digits}f}-{max(values):.{digits}f}]"


def figures_of(rows: Iterable[Row], **wanted: object) -> list[Row]:
    """The figures of the rows that have these values."""
    return [row["figures"] for row in having(rows, **wanted)]


def table(head: str, lines: Iterable[Sequence[object]]) -> str:
    """A Markdown table; the head is cells with ` | ` between."""
    rows = [f"| {' | '.join(map(str, line))} |" for line in lines]
    return "\n".join([f"| {head} |", "|" + "---|" * len(head.split(" | ")), *rows, ""])


def _names(rows: Iterable[Row], key: str) -> list[Any]:
    return list(dict.fromkeys(row[key] for row in rows))


def _column(figures: Iterable[Row], name: str) -> list[float]:
    return [one[name] for one in figures]


def throughput_table(rows: Sequence[Row]) -> str:
    """A line per shape and party that bars are about."""
    lines = []
    for shape in filter(SHAPES.__contains__, _names(rows, "shape")):
        for party in PARTIES:
            if found := figures_of(rows, shape=shape, party=party):
                latencies = [span(_column(found, name), 2) for name in ("p50_ms", "p999_ms")]
                mb_per_s, cpu = span(list(map(speed, found))), span(list(map(all_cpu, found)))
                lines.append([shape, party, cpu, mb_per_s, *latencies])
    return table("requests | party | CPU ms/MB, all processes | MB/s | p50 ms | p99.9 ms", lines)


def clients_table(rows: Sequence[Row]) -> str:
    """A line per client."""
    lines = []
    for client in _names(rows, "client"):
        found = figures_of(rows, client=client)
        read = [one["read_per_s"] for one in found if "read_per_s" in one]
        lines.append([client, span(_column(found, "records_per_s"), 0), span(list(map(speed, found))), span(read, 0)])
        for name, reduced, digits in (("cpu_ms_per_mb", math.fsum, 2), ("rss_mib", max, 0)):
            of_servers = [reduced(value for key, value in one[name].items() if key != "client") for one in found]
            lines[-1] += [span(of_servers, digits), span([one[name]["client"] for one in found], digits)]
    head = "client | sent, records/s | MB/s | read, records/s | servers, CPU ms/MB | client, CPU ms/MB"
    return table(f"{head} | largest server, RSS MiB | client, RSS MiB", lines)


def failover_table(rows: Sequence[Row]) -> str:
    """A line per fault and session time-out."""
    lines = []
    for row in rows:
        gaps, times = row["gaps_ms"], [row[name] for name in ("session_timeout_ms", "heartbeat_interval_ms")]
        lines.append([FAULTS[row["fault"]], *times, len(gaps), span(gaps, 0), row["load"]["per_s"]])
        lines[-1].append(row["machine_percent"])
    head = "fault | session time-out, ms | heartbeat, ms | times | gap, ms | load, records/s | machine, % of a core"
    return table(head, lines)


SECTIONS: Mapping[str, tuple[str, str, Callable[[Sequence[Row]], str]]] = {
    "throughput": ("Throughput", THROUGHPUT, throughput_table),
    "clients": ("Full clients: records per second", CLIENTS, clients_table),
    "failover": ("Failover: silence of acknowledgements per `kill -9` of the leader", FAILOVER, failover_table),
}


def page(results: Results) -> str:
    """Bars, and the tables of what was measured."""
    measured: Mapping[str, Row] = results.get("parts", {})
    if not measured:
        return HEAD
    newest = max((about for about in measured.values() if "nats" in about), key=lambda about: str(about["date"]))
    machine = _machine(newest)
    nice = " or ".join(sorted({str(about["nice"]) for about in measured.values() if "nice" in about}))
    how = f"grpcio {newest['grpcio']}, {newest['nats']}, every process at nice {nice}, {newest['scheduler']}"
    lines = [HEAD, f"Measured on {machine}, {how} scheduling.\n"]
    if any(about.get("smoke") for about in measured.values()):
        lines.append(SMOKE)
    else:
        head = "measure | figure | wanted | obtained | "
        lines += ["## Bars\n", table(head, (bar.line(results) for bar in BARS))]
    for part, (heading, method, drawn) in SECTIONS.items():
        if part in measured:
            lines += [f"## {heading}\n", _facts(part, measured[part], machine), method, drawn(results[part])]
    if sizes := [part for part in SIZES if part in measured]:
        about = "".join(_facts(part, measured[part], machine, f"{part.capitalize()}:") for part in sizes)
        rows = [row for part in sizes for row in results[part]]
        cells = [(row["figure"], row["wanted"], row["measured"], VERDICTS[row["is_met"]]) for row in rows]
        table_of_sizes = table("figure | wanted | measured | ", cells)
        lines += ["## Groups, transactions, metadata, moves and rules\n", about, table_of_sizes]
    return "\n".join(lines)


def size_row(figure: str, measured: str, wanted: str = "", is_met: bool | None = None) -> dict[str, Any]:
    """One row of a part of `SIZES`."""
    return {"figure": figure, "wanted": wanted, "measured": measured, "is_met": is_met}


def _machine(about: Row) -> str:
    return f"{about['cpus']} CPUs, {about['kernel']}, Python {about['python']}"


def _facts(part: str, about: Row, machine: str, begin: str = "Measured") -> str:
    """When, at which commit, and what must be known about this part's rows; ``machine`` is what the page said above."""
    own = _machine(about)
    facts = [
        f"{begin or 'Measured'} {about['date']} at commit {about['commit']}" + ("" if own == machine else f" on {own}")
    ]
    if "load_after" in about:
        facts.append(f"load average {about['load_before']} before and {about['load_after']} after")
    if part == "throughput":
        facts.append(f"{about['rounds']} rounds, {about['run_s']:g} s each after {about['warm_s']:g} s of warming")
    absent = about.get("absent", {}) if part in BESIDE_PEERS else {}
    if part in BESIDE_PEERS and about.get("kafka_warm_s") and "Kafka" not in absent:
        facts.append(f"Kafka warmed for {about['kafka_warm_s']:g} s before the first round")
    facts.append(f"Strandline on {about.get('transport', 'grpcio')} where a row does not name another")
    if about.get("repeated") and part != "failover":
        dropped = about["dropped"]
        facts.append(f"{about['repeated']} measurements repeated for steal time, {len(dropped)} of them dropped")
        facts += [f"dropped: {name}" for name in dropped]
    if not about.get("complete", True):
        facts.append("**interrupted: not all rounds were measured**")
    facts += [f"{name} is absent: {why}" for name, why in absent.items()]
    return "; ".join([*facts, *about.get("notes", ())]) + ".\n"


def sizing_table(results: Results) -> str:
    """The sizing of a data node: one row per shape of load with fsync, and where it was measured."""
    about = results["parts"]["throughput"]
    rows = [row for row in results["throughput"] if row["party"] == SYNCED]
    lines = []
    for shape in _names(rows, "shape"):
        found = figures_of(rows, shape=shape)
        followers = [cpu for one in found for name, cpu in one["cpu_ms_per_mb"].items() if name.startswith("follower")]
        leader = median(one["cpu_ms_per_mb"]["leader"] for one in found)
        most = max(one["rss_mib"]["leader"] for one in found)
        lines.append(
            [shape, f"{median(map(speed, found)):.0f}", f"{leader:.1f}", f"{median(followers):.1f}", f"{most:.0f}"]
        )
    head = "requests | MB/s | CPU of the leader, ms/MB | of a follower, ms/MB | memory of the leader, MiB"
    where = f"Measured {about['date']} on one machine with {about['cpus']} CPUs that ran all three nodes and the client"
    facts = f"{about['kernel']}, Python {about['python']}; medians, memory at most."
    return f"{table(head, lines)}\n{where}; {facts}"


def speed_sentence(results: Results) -> str:
    """How fast Strandline is beside its peers: ratios, each the median over the rounds in which both were measured."""
    rows = results["throughput"]

    def both(ours: str, peer: str) -> str:
        found = [
            ratios(rows, speed, {"shape": shape, "party": ours}, {"shape": shape, "party": peer})
            for shape in SHAPES[:2]
        ]
        return " and ".join(f"{median(each):.2f}" for each in found)

    kafka = f", and {both(OURS, KAFKA)} of Kafka's" if any(row["party"] == KAFKA for row in rows) else ""
    return (
        "With one and with five requests of 64 KiB outstanding, Strandline reached "
        f"{both(OURS, NATS)} of the throughput of NATS JetStream{kafka}, on one machine in the same rounds, "
        "where none of them syncs before it answers. "
        f"With fsync, the default, it reached {both(SYNCED, NATS)} of NATS JetStream, which still does not sync."
    )
