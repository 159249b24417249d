"""The figures of a performance run: rate, throughput, percentiles of latency.

Invariant: percentiles are by nearest rank, so each is a latency that some record had; the warm-up is in no figure.
"""

from __future__ import annotations

import asyncio
import math
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from strandline.cli.durations import Duration
from strandline.cli.failures import CommandFailed
from strandline.cli.output import Format, print_document
from strandline.cli.perf.load import Load, Numbers, uncounted
from strandline.units import duration_text

if TYPE_CHECKING:
    from strandline.cli.perf.member import MemberFigures
    from strandline.client import Consumer, FetchedRecords, Producer, Record

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


async def measure_producing(
    load: Load,
    producer: Producer,
    records: int,
    warm_up: int,
    count: Callable[[int], None],
    transactional: Duration | None = None,
) -> Measured:
    """Sends the warm-up, waits for its end, then the records that count; perhaps in transactions of a length.

    Raises:
        CommandFailed: a record was given up, or a transaction not committed.
    """

    async def send(number_of_records: int, done: Callable[[Numbers], None]) -> None:
        if transactional is None:
            await load.send(producer, number_of_records, done)
        else:
            await load.send_in_transactions(producer, number_of_records, transactional.s, done)

    await send(warm_up, uncounted)
    of = "acknowledgement" if transactional is None else "the commit of its transaction"
    measured = Measured(of=of, warm_up_records=warm_up)
    due_s = load.due_s

    def done(numbers: Numbers) -> None:
        # They all ended at this moment, and each was due at another.
        now_s = time.monotonic()
        measured.latencies_s.fromlist([now_s - due_s[number] for number in numbers])
        measured.records += len(numbers)
        count(measured.records)

    began_s = time.monotonic()
    await send(records, done)
    measured.elapsed_s = time.monotonic() - began_s
    assert measured.records == records, "a record ended and was not counted"
    measured.size_bytes = measured.records * load.size_bytes
    return measured


class Reading(Protocol):
    """What is read from: a consumer with partitions and an end, or a member of a group."""

    @property
    def is_finished(self) -> bool:
        """Whether there is nothing more."""

    async def fetch_batches(self) -> list[FetchedRecords]:
        """What comes next."""


async def measure_consuming(
    consumer: Reading,
    topic: str,
    records: int,
    warm_up: int,
    count: Callable[[int], None],
    group: str | None = None,
    assigned_s: float | None = None,
) -> Measured:
    """Reads the warm-up and the records that count; time begins with the fetch that brings the first of these.

    Without a warm-up it begins at ``assigned_s``, if given: a consumer fetches ahead as soon as it knows what to read.

    Raises:
        CommandFailed: the topic has fewer records, or the member of ``group`` is given fewer.
    """
    measured = Measured(of="a fetch", warm_up_records=warm_up)
    seen, began_s = 0, time.monotonic() if assigned_s is None else assigned_s
    begins_with_fetch = warm_up > 0 or assigned_s is None
    while seen < warm_up + records:
        if consumer.is_finished:
            raise CommandFailed(_too_few(topic, seen, records, warm_up, group))
        asked_s = time.monotonic()
        if begins_with_fetch and seen <= warm_up:
            began_s = asked_s
        fetched = await consumer.fetch_batches()
        got_s = time.monotonic()
        counted_before = measured.records
        for part in fetched:
            counted = part.records[max(0, warm_up - seen) : max(0, warm_up + records - seen)]
            seen += len(part.records)
            measured.records += len(counted)
            measured.size_bytes += _size_bytes(counted)
        if measured.records > counted_before:
            measured.latencies_s.append(got_s - asked_s)
            measured.elapsed_s = got_s - began_s
            count(measured.records)
    return measured


def _size_bytes(records: Sequence[Record]) -> int:
    total = 0
    # Taken apart, because reading each by its name, or one generator for all, takes several times as long.
    for _, _, key, value, _ in records:
        if value:
            total += len(value)
        if key:
            total += len(key)
    return total


def _too_few(topic: str, seen: int, records: int, warm_up: int, group: str | None) -> str:
    wanted = f"fewer than {warm_up:,} of the warm-up and {records:,} that count"
    remedy = f"give --records and --warm-up, or add some with `strandline perf produce {topic}`"
    if group is None:
        return f"{topic} has {seen:,} records, {wanted}; {remedy}"
    return (
        f"group {group} had {seen:,} records of {topic} for this member behind what it has committed, {wanted}; "
        f"{remedy}, or name a group that has not read them"
    )


async def measure_both(
    load: Load, producer: Producer, consumer: Consumer, records: int, warm_up: int, count: Callable[[int], None]
) -> Measured:
    """Sends and reads at once; ends when everything sent was read.

    Raises:
        CommandFailed: a record was given up, or read twice.
    """
    measured = Measured(of="a record from sending to reading", warm_up_records=warm_up)
    is_read = bytearray(warm_up + records)

    async def read() -> None:
        left = warm_up + records
        while left:
            for fetched in await consumer.fetch_batches():
                now_s = time.monotonic()
                for record in fetched.records:
                    number = load.number_of(record.value)
                    if number is None:
                        continue
                    if is_read[number]:
                        raise CommandFailed(f"record {number:,} was read twice, now at offset {record.offset:,}")
                    is_read[number], left = 1, left - 1
                    if number >= warm_up:
                        measured.latencies_s.append(now_s - load.due_s[number])
                        measured.records += 1
                        measured.elapsed_s = now_s - load.due_s[warm_up]
            count(measured.records)

    try:
        async with asyncio.TaskGroup() as both:
            both.create_task(read())
            both.create_task(load.send(producer, warm_up + records, uncounted))
    except* CommandFailed as failed:
        raise failed.exceptions[0] from None
    measured.size_bytes = measured.records * load.size_bytes
    return measured
