"""Everything about transactions, on two clusters: one as it ships, and one whose processes count their messages."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from anatomy import probes
from transaction_figures.against_plain import Pair, latencies, rates
from transaction_figures.beside_open import CannotCountError, Rounds, beside, messages, processor_time, system_calls
from transaction_figures.coordinator_killed import commits_back
from transaction_figures.page import Figures

from strandline.cli.local.local_cluster import LocalCluster, Plan

_SEGMENT_BYTES = 16 << 20
"""Small, so that the records of a round leave the disk when they are deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured."""

    rounds: int = 10
    """Of latencies, records per second and processor time."""
    ids: int = 1_000
    megabytes: int = 96
    """Sent for each figure of processor time."""
    records: int = 100_000
    """Sent for each figure of records per second."""
    singles: int = 100
    """Transactions of one record, and records of none, for each latency."""
    batches: int = 500
    """Sent for each count."""
    count_rounds: int = 4
    """Of counts, which differ less than times."""
    kills: int = 5
    settle_ms: int = 2_000
    """Between the beginning or the end of all transactions and what is measured next."""


async def measure(directory: Path, size: Size) -> Figures:
    """All figures; some minutes at the usual size."""
    counted = await _messages(directory, size)
    async with _cluster(directory / "cluster") as cluster:
        _say("latency of one record")
        latency = await latencies(cluster.bootstrap, size.rounds, size.singles)
        _say("records per second")
        rate = await rates(cluster.bootstrap, size.rounds, size.records)
        async with beside(cluster, size.ids, size.settle_ms) as rounds:
            _say("processor time beside open transactions")
            cpu = await rounds(size.rounds, processor_time(cluster, size.megabytes))
            _say("system calls beside open transactions")
            calls = await _calls(rounds, cluster, size)
        _say("kills of the coordinator's node")
        back_s = await commits_back(cluster, size.ids, size.kills)
    return Figures(latencies=latency, rates=rate, cpu=cpu, calls=calls, messages=counted, back_s=back_s, ids=size.ids)


async def _calls(rounds: Rounds, cluster: LocalCluster, size: Size) -> list[Pair]:
    """None where they cannot be counted: the other figures are worth having."""
    try:
        return await rounds(size.count_rounds, system_calls(cluster, size.batches))
    except CannotCountError as error:
        _say(str(error))
        return []


async def _messages(directory: Path, size: Size) -> list[Pair]:
    folder = directory / "probes"
    with probes(folder):
        async with _cluster(directory / "probed") as cluster, beside(cluster, size.ids, size.settle_ms) as rounds:
            _say("messages beside open transactions")
            return await rounds(size.count_rounds, messages(cluster, size.batches, folder))


@asynccontextmanager
async def _cluster(directory: Path) -> AsyncIterator[LocalCluster]:
    cluster = LocalCluster(Plan(directory=directory, node_settings={"segment_bytes": str(_SEGMENT_BYTES)}))
    try:
        await cluster.start()
        yield cluster
    finally:
        cluster.kill()


def _say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)
