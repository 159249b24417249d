"""What a performance run counted, and how it is shown: rate, throughput, percentiles of latency.

Invariant: percentiles are by nearest rank, so each is a latency that some record had; the warm-up is in no figure.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from strandline.cli.output import Format, print_document
from strandline.units import duration_text

if TYPE_CHECKING:
    from strandline.cli.perf_member import MemberFigures

PERCENTILES = {"p50": 50.0, "p95": 95.0, "p99": 99.0, "p999": 99.9, "max": 100.0}


@dataclass(slots=True, kw_only=True)
class Measured:
    """One run's counts. ``of`` says what a latency spans."""

    of: str
    records: int = 0
    size_bytes: int = 0
    """Of keys and values; what headers and batches add is not counted."""
    elapsed_s: float = 0.0
    warm_up_records: int = 0
    latencies_s: array[float] = field(default_factory=lambda: array("d"))
    member: MemberFigures | None = None
    """Of a run that read as a member of a group."""


def percentiles_ms(seconds: Sequence[float]) -> dict[str, float | None]:
    """By name, in ms; None without any value."""
    ordered = sorted(seconds)
    if not ordered:
        return dict.fromkeys(PERCENTILES)
    # A whole number of thousandths: 99.9 % of 1,000 is the 999th, whatever floats make of it.
    ranks = {name: math.ceil(round(percent * len(ordered) / 100, 6)) for name, percent in PERCENTILES.items()}
    return {name: round(1e3 * ordered[max(1, rank) - 1], 3) for name, rank in ranks.items()}


def document_of(measured: Measured) -> dict[str, Any]:
    """The figures by name; MB are millions of bytes."""
    elapsed_s = max(measured.elapsed_s, 1e-9)
    return {
        "records": measured.records,
        "bytes": measured.size_bytes,
        "elapsed_s": round(measured.elapsed_s, 6),
        "records_per_s": round(measured.records / elapsed_s, 1),
        "mb_per_s": round(measured.size_bytes / elapsed_s / 1e6, 3),
        "latency_of": measured.of,
        "latencies": len(measured.latencies_s),
        "latency_ms": percentiles_ms(measured.latencies_s),
        "warm_up_records": measured.warm_up_records,
        **({} if measured.member is None else {"member": measured.member._asdict()}),
    }


def show_run(document: dict[str, Any], form: Format) -> None:
    """Two lines for people and one more of a membership; the whole document for programs."""
    if form is not Format.TABLE:
        print_document(document, form)
        return
    print(
        f"{document['records']:,} records in {duration_text(document['elapsed_s'] * 1_000)}: "
        f"{document['records_per_s']:,.0f} records/s, {document['mb_per_s']:,.2f} MB/s"
    )
    times = ", ".join(
        f"{'p99.9' if name == 'p999' else name} {duration_text(ms)}" for name, ms in document["latency_ms"].items()
    )
    print(f"latency of {document['latency_of']}: {times} (without {document['warm_up_records']:,} records of warm-up)")
    if member := document.get("member"):
        print(
            f"member of group {member['group']}: {member['partitions']:,} partitions at the end, joined in "
            f"{duration_text(member['joined_ms'])}, assignment changed {member['assignment_changes']:,} times since"
        )
