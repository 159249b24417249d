"""The rows of the other measures as tables: full clients, consuming, fan-out, idle cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cells import column, figures_of, names, span, table

Row = Mapping[str, Any]


def clients_section(rows: Sequence[Row]) -> str:
    """Records/s through the full clients."""
    lines = []
    for client in names(rows, "client"):
        found = figures_of(rows, client=client)
        lines.append([client, *_speed(found), *_processes(found)])
    return "\n".join(
        [
            "## Full clients: records per second",
            "",
            "Records of 1 KiB to six partitions with three replicas, acks=all, idempotent, batches of at most 256 KiB, "
            "linger 5 ms, five requests in flight, as fast as the client takes them; until the last acknowledgement.",
            "`page-cache` and `fsync` are what our acknowledgement means; Kafka's means the page cache.",
            "",
            *table(["client", *_SPEED, *_PROCESSES], lines),
        ]
    )


def consuming_section(rows: Sequence[Row]) -> str:
    """Reading a whole topic, cold and cached."""
    lines = []
    for client in names(rows, "client"):
        for cache in names(rows, "cache"):
            found = figures_of(rows, client=client, cache=cache)
            if found:
                cached = span([100 * share for share in column(found, "share_cached_before")], 0)
                lines.append([client, cache, cached, *_speed(found), *_processes(found)])
    return "\n".join(
        [
            "## Consuming, cold and cached",
            "",
            "A full client reads a topic of 1 KiB records in six partitions from its beginning to its end, in lists.",
            "Cold: the log files of all nodes were put out of the page cache before the read (`POSIX_FADV_DONTNEED`), "
            "and the nodes ran on. Cached: the files were read before. The kernel says which pages were in the cache.",
            "",
            *table(["client", "cache", "% cached before", *_SPEED, *_PROCESSES], lines),
        ]
    )


def fan_out_section(rows: Sequence[Row]) -> str:
    """Latency and cost of consumers at the tail."""
    lines = []
    for consumers in names(rows, "consumers"):
        found = figures_of(rows, consumers=consumers)
        latencies = [span(column(found, name), 2) for name in ("p50_ms", "p99_ms", "p999_ms")]
        received = span(column(found, "received"), 0)
        rate = [span(column(found, name), 1) for name in ("records_per_s", "delivered_megabytes_per_s")]
        lines.append([consumers, *rate, received, *latencies, *_processes(found, servers_are_roles=True)])
    head = ["consumers", "records/s sent", "MB/s received", "records received", "p50 ms", "p99 ms", "p99.9 ms"]
    return "\n".join(
        [
            "## Fan-out: latency from sending to receiving",
            "",
            "One producer sends records of 64 KiB to one partition at a steady rate below the limit of the machine, "
            "page cache; all consumers read its tail from the leader, up to ten of them in one process.",
            "CPU is per MB received.",
            "",
            *table([*head, *_PROCESSES], lines),
        ]
    )


def idle_section(rows: Sequence[Row]) -> str:
    """What a cluster without load costs."""
    processes = list(dict.fromkeys(name for row in rows for name in row["figures"]["cpu_percent"]))
    lines = []
    for partitions in names(rows, "partitions"):
        found = figures_of(rows, partitions=partitions)
        percent = [span([one["cpu_percent"][name] for one in found], 2) for name in processes]
        rss = span([max(one["rss_mib"].values()) for one in found], 0)
        lines.append([f"{partitions:,}", *percent, rss])
    return "\n".join(
        [
            "## Idle cost",
            "",
            "Three replicas of each partition on three nodes with their defaults, no client, once the work of adding "
            "partitions is done; CPU in % of a core.",
            "",
            *table(["partitions", *processes, "largest RSS MiB"], lines),
        ]
    )


def workers_section(rows: Sequence[Row]) -> str:
    """What a second worker of a machine gives."""
    lines = []
    for number in names(rows, "workers"):
        found = figures_of(rows, workers=number)
        figures = [span(column(found, name), digits) for name, digits in (("megabytes_per_s", 1), ("p50_ms", 2))]
        cores = [sum(one["workers_cores"].values()) for one in found]
        speed = column(found, "megabytes_per_s")
        per_core = span([mb / spent for mb, spent in zip(speed, cores, strict=True) if spent], 0)
        lines.append([number, *figures, span(cores, 2), per_core, span(column(found, "clients_cores"), 2)])
    return "\n".join(
        [
            "## Workers of one machine",
            "",
            "Two clients in closed loops, 64 KiB and five requests outstanding each, page cache, one replica; both "
            "partitions on one worker, or each on one of two (`--workers`).",
            "Workers and clients share all cores of the machine, so the gain is bounded by what the clients leave. "
            f"{_gain(rows)}",
            "",
            *table(
                ["workers", "MB/s", "p50 ms", "cores of the workers", "MB/s per such core", "cores of the clients"],
                lines,
            ),
        ]
    )


def _gain(rows: Sequence[Row]) -> str:
    """How the second worker compares, round by round."""
    speed = {(row["round"], row["workers"]): row["figures"]["megabytes_per_s"] for row in rows}
    ratios = [speed[number, 2] / speed[number, 1] for number, workers in speed if workers == 2 and (number, 1) in speed]
    return f"Two workers to one, MB/s in the same round: {span(ratios, 2)}." if ratios else "No round has both."


_SPEED = ("records/s", "MB/s")
_PROCESSES = ("servers, CPU ms/MB", "client, CPU ms/MB", "largest server, RSS MiB", "client, RSS MiB")


def _speed(found: Sequence[Row]) -> list[str]:
    return [span(column(found, "records_per_s"), 0), span(column(found, "megabytes_per_s"))]


def _processes(found: Sequence[Row], *, servers_are_roles: bool = False) -> list[str]:
    servers = ("leader", "follower") if servers_are_roles else ("node",)

    def is_server(name: str) -> bool:
        return name.startswith(servers)

    def cpu(*, of_servers: bool) -> list[float]:
        return [sum(ms for name, ms in one["cpu_ms_per_mb"].items() if is_server(name) is of_servers) for one in found]

    def rss(*, of_servers: bool) -> list[float]:
        return [max(mib for name, mib in one["rss_mib"].items() if is_server(name) is of_servers) for one in found]

    both = (True, False)
    return [span(cpu(of_servers=which), 2) for which in both] + [span(rss(of_servers=which), 0) for which in both]
