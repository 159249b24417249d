"""Measures a full client that reads a topic from its beginning: cold, from the disk, and cached.

Cold means that the log files of all nodes were put out of the page cache just before (POSIX_FADV_DONTNEED), while the
nodes ran on; cached, that the files were read just before. The share of pages that were in the cache is part of each
row. Filled once per party, read in every round.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import page_cache
from bench import Bench, Row
from client_records import PARTITIONS, wait_in_sync
from parties import RUN_GRACE_S, fresh_topic, run_script
from plan import Plan

COLD, CACHED = "cold", "cached"
OURS, AIOKAFKA = "strandline.client", "aiokafka from Kafka"
_READ_S, _FILL_S = 4.0, 10.0


@dataclass(frozen=True, slots=True)
class Source:
    """A topic that is full, and where its log files are."""

    name: str
    kind: str
    bootstrap: str
    topic: str
    pids: Mapping[str, int | None]
    directories: Sequence[Path]

    @property
    def files(self) -> list[Path]:
        """The log files of this topic on every node; the folder of a partition begins with the topic's name."""
        return [file for home in self.directories for file in home.rglob(f"{self.topic}-*/*.log")]

    def read(self, count: int, *, cold: bool) -> Mapping[str, Any]:
        """Read the whole topic once."""
        (page_cache.drop if cold else page_cache.load)(self.files)
        share = page_cache.share_cached(self.files)
        pids = ",".join(f"{name}:{pid}" for name, pid in self.pids.items())
        asked = (self.kind, self.bootstrap, self.topic, pids, count)
        figures = run_script("records_consumer.py", *asked, limit_s=2 * RUN_GRACE_S)
        return {**figures, "share_cached_before": round(share, 3)}


def rows(bench: Bench) -> Iterator[Row]:
    """A cold read, then a cached one, per party and round."""
    count = bench.plan.consumed_records
    with ExitStack() as stack:
        sources = [make(bench, stack) for make in (_ours, _aiokafka)]
        for number in range(bench.plan.rounds):
            for source in (one for one in sources if one is not None):
                for cold in (True, False):
                    yield from bench.row(
                        lambda source=source, cold=cold: source.read(count, cold=cold),
                        round=number,
                        client=source.name,
                        cache=COLD if cold else CACHED,
                    )


def expected_s(plan: Plan) -> float:
    """Seconds."""
    return plan.rounds * 4 * _READ_S + 2 * _FILL_S


def _ours(bench: Bench, stack: ExitStack) -> Source:
    cluster = bench.servers.cached
    topic = stack.enter_context(fresh_topic(cluster.bootstrap, "consumed", PARTITIONS))
    wait_in_sync(cluster.bootstrap, topic)
    pids = {service.name: service.pid for service in cluster.nodes.values()}
    source = Source(OURS, "strandline", cluster.bootstrap, topic, pids, [cluster.directory])
    return _filled(source, bench.plan.consumed_records)


def _aiokafka(bench: Bench, stack: ExitStack) -> Source | None:
    kafka = bench.servers.kafka
    if kafka is None:
        return None
    topic = stack.enter_context(kafka.topic(PARTITIONS))
    source = Source(AIOKAFKA, "aiokafka", kafka.bootstrap, topic, kafka.pids, kafka.homes)
    return _filled(source, bench.plan.consumed_records)


def _filled(source: Source, count: int) -> Source:
    asked = (source.kind, source.bootstrap, source.topic, "fill", count)
    run_script("records_producer.py", *asked, limit_s=2 * RUN_GRACE_S)
    if not source.files:
        raise RuntimeError(f"no log file of {source.topic} in {source.directories}")
    return source
