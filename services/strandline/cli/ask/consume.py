"""`strandline consume`: a topic's records on stdout, one per line, or in a format.

Invariant: only committed records are printed, each partition's in order of offset; figures go to stderr, so that
stdout holds records and nothing else.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.ask.consume_options import (
    FORMAT_HELP,
    OFFSET_FORMS,
    UNTIL_FORMS,
    AtTime,
    End,
    Last,
    Start,
    Write,
    end_of,
    json_line,
    read_format,
    start_of,
)
from strandline.cli.ask.record_input import key_of
from strandline.cli.connect import known_topic, open_admin, over_tls, tls_options
from strandline.cli.durations import FORMS
from strandline.cli.failures import perform
from strandline.cli.options import Bootstrap, Topic, addresses, group_option, partition_list

if TYPE_CHECKING:
    from strandline.client import Consumer
    from strandline.records.codec import Record

_LOOK_EVERY_MS = 200
"""How often a bounded reading looks whether it is over, while nothing comes."""


_MOST_AT_ONCE = 500
"""Records of one poll, and so what may be printed again after a crash."""


class RecordForm(StrEnum):
    """How a record is printed."""

    TEXT = "text"
    JSON = "json"


class Isolation(StrEnum):
    """Which records are given."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


FromFollower = Annotated[bool, typer.Option("--from-follower", help="Read from followers, up to their high watermark.")]
IsolationLevel = Annotated[Isolation, typer.Option(help="Only records of committed transactions, or all.")]


@over_tls
def consume(
    topic: Topic,
    bootstrap: Bootstrap,
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="Begin with the oldest record.")] = False,
    offset: Annotated[
        str | None, typer.Option(metavar="PLACE", help=f"Begin at {OFFSET_FORMS}; in every partition read.")
    ] = None,
    timestamp: Annotated[
        str | None, typer.Option(metavar="TIME", help=f"Begin at this time: {FORMS}; the same as --offset @TIME.")
    ] = None,
    partition: Annotated[
        str | None, typer.Option("--partition", "-p", metavar="N[,...]", help="Only these partitions.")
    ] = None,
    group: Annotated[
        str | None,
        group_option(
            "Read as a member of this group: begin where it has committed, else at the end or --from-beginning; "
            "commit what was printed."
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="PLACE", help=f"End before {UNTIL_FORMS}; end is the log end when reading began."),
    ] = None,
    stop_at_end: Annotated[bool, typer.Option("--stop-at-end", help="The same as --until end.")] = False,
    max_records: Annotated[int | None, typer.Option("--max-records", "-n", min=1, help="How many records.")] = None,
    from_follower: FromFollower = False,
    isolation: IsolationLevel = Isolation.READ_COMMITTED,
    key: Annotated[str | None, typer.Option("--key", "-k", metavar="TEXT", help="Only records with this key.")] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", metavar="TEXT", help="Also print keys, separated by TEXT.")
    ] = None,
    record_format: Annotated[str | None, typer.Option("--format", "-f", metavar="FORMAT", help=FORMAT_HELP)] = None,
    output: Annotated[
        RecordForm, typer.Option("--output", "-o", help="Values as lines, or one json object per record.")
    ] = RecordForm.TEXT,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no summary at the end.")] = False,
) -> None:
    """Print a topic's records. Starts at the end by default, as Kafka's consumer does."""
    if group is not None:
        _refuse_places(offset, timestamp, partition, until, stop_at_end)
    plan = Plan(
        topic=topic,
        group=group,
        partitions=partition_list(partition),
        start=start_of(from_beginning, offset, timestamp),
        end=end_of(stop_at_end, until),
        max_records=max_records,
        from_follower=from_follower,
        isolation=isolation,
        key=key_of(key),
    )
    printer = printer_of(output, record_format, key_separator)
    perform(_consume(bootstrap, plan, printer))
    if not quiet and sys.stderr.isatty():
        typer.echo(f"{printer.printed:,} records", err=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to read, from where, and until when. ``partitions`` None: all; ``key`` None: any."""

    topic: str
    group: str | None = None
    partitions: list[int] | None
    start: Start
    end: End
    max_records: int | None
    from_follower: bool
    isolation: Isolation
    key: bytes | None

    def wants(self, key: bytes | None) -> bool:
        """Whether records with this key are printed."""
        return self.key is None or key == self.key

    def ends(self, timestamp_ms: int | None) -> bool:
        """Whether a record of this time lies beyond a time that ends the reading."""
        return isinstance(self.end, AtTime) and timestamp_ms is not None and timestamp_ms >= self.end.timestamp_ms


@dataclass(slots=True, kw_only=True)
class Printer:
    """Prints records to stdout and counts them."""

    write: Write | None = None
    """A whole line; None: the value, after what ``shows_place`` and ``key_separator`` add."""
    key_separator: str | None = None
    shows_place: bool = False
    printed: int = 0

    def show(self, topic: str, partition: int, record: Record) -> None:
        """One record: one line, or what the format says."""
        self.printed += 1
        out = sys.stdout.buffer
        if self.write is not None:
            out.write(self.write(topic, partition, record))
            return
        if self.shows_place:
            out.write(b"[%d]@%d " % (partition, record.offset))
        if self.key_separator is not None:
            out.write((record.key or b"") + os.fsencode(self.key_separator))
        out.write((record.value or b"") + b"\n")

    def read_from(self, partitions: int) -> None:
        """People see which partition a record is of, where there are several; a pipe gets the values alone."""
        self.shows_place = partitions > 1 and sys.stdout.isatty()


def printer_of(output: RecordForm, record_format: str | None, key_separator: str | None) -> Printer:
    """The printer that the options describe.

    Raises:
        typer.BadParameter: the format is wrong, or given together with another form.
    """
    if record_format is None:
        return Printer(write=json_line if output is RecordForm.JSON else None, key_separator=key_separator)
    if output is not RecordForm.TEXT or key_separator is not None:
        raise typer.BadParameter("--format defines the whole line; give it without --output and --key-separator")
    return Printer(write=read_format(record_format))


def _refuse_places(*places: object) -> None:
    """A group has places of its own.

    Raises:
        typer.BadParameter: one is given all the same.
    """
    if any(places):
        raise typer.BadParameter(
            "--group reads what the group assigns, from its committed offsets; give it without --offset, --timestamp, "
            "--partition, --until and --stop-at-end, or move the group first: strandline group reset-offsets"
        )


async def _consume_in_group(bootstrap: str, plan: Plan, printer: Printer) -> None:
    """Until so many are printed, or for ever. Each poll commits what was printed before it, and so does the end."""
    from strandline.client import Consumer, Record

    async with open_admin(bootstrap) as admin:
        # A group may subscribe to a topic that does not exist yet; a person who types its name means one that does.
        await admin.describe_topics([plan.topic])
    consumer = Consumer(
        addresses(bootstrap),
        group=plan.group,
        read_from="follower" if plan.from_follower else "leader",
        isolation=plan.isolation.value,
        auto_offset_reset="earliest" if plan.start == "beginning" else "latest",
        **tls_options(),
    )
    async with consumer:
        await consumer.subscribe(plan.topic)
        left = plan.max_records
        while left is None or left > 0:
            records = await consumer.poll(max_records=_MOST_AT_ONCE if left is None else min(left, _MOST_AT_ONCE))
            printer.read_from(len(consumer.assignment()))
            for record in records:
                if plan.wants(record.key):
                    printer.show(record.topic, record.partition, Record(*record[2:]))
                    left = None if left is None else left - 1
            sys.stdout.flush()
        await consumer.commit()


async def _consume(bootstrap: str, plan: Plan, printer: Printer) -> None:
    from strandline.client import Consumer

    if plan.group is not None:
        await _consume_in_group(bootstrap, plan, printer)
        return
    consumer = Consumer(
        addresses(bootstrap),
        read_from="follower" if plan.from_follower else "leader",
        isolation=plan.isolation.value,
        stop_at_end=plan.end == "end",
        **tls_options(),
    )
    async with consumer:
        async with known_topic(plan.topic):
            partitions = await _place(bootstrap, consumer, plan)
        printer.read_from(len(partitions))
        if plan.end is None or plan.end == "end":
            await _print_all(consumer, plan, printer)
        else:
            await _print_range(bootstrap, consumer, plan, printer, partitions)


async def _print_all(consumer: Consumer, plan: Plan, printer: Printer) -> None:
    """Until the end that the consumer knows, the number of records, or for ever."""
    while not (plan.end == "end" and consumer.is_finished):
        for fetched in await consumer.fetch_batches():
            for record in fetched.records:
                if printer.printed == plan.max_records:
                    break
                if plan.wants(record.key):
                    printer.show(fetched.topic, fetched.partition, record)
        sys.stdout.flush()
        if printer.printed == plan.max_records:
            return


async def _print_range(bootstrap: str, consumer: Consumer, plan: Plan, printer: Printer, partitions: list[int]) -> None:
    """Until each partition has given what lies before the end."""
    ends: Mapping[int, int] | None = dict.fromkeys(partitions, plan.end) if isinstance(plan.end, int) else None
    left = set(partitions)
    while left and printer.printed != plan.max_records:
        if ends is None and isinstance(plan.end, AtTime) and time.time() * 1_000 >= plan.end.timestamp_ms:
            # Nothing later can lie before the time, except by a clock that is wrong.
            ends = await _offsets_at(bootstrap, plan.topic, partitions, plan.end)
        over = {index for index in left if ends is not None and _is_beyond(consumer, plan.topic, index, ends[index])}
        for fetched in await consumer.fetch_batches(timeout_ms=0 if over else _LOOK_EVERY_MS):
            for record in fetched.records if fetched.partition in left - over else ():
                if (ends is not None and record.offset >= ends[fetched.partition]) or plan.ends(record.timestamp_ms):
                    over.add(fetched.partition)
                    break
                if printer.printed == plan.max_records:
                    break
                if plan.wants(record.key):
                    printer.show(fetched.topic, fetched.partition, record)
        sys.stdout.flush()
        left -= over
        if over and left:
            await consumer.assign([(plan.topic, index) for index in sorted(left)])


def _is_beyond(consumer: Consumer, topic: str, partition: int, end: int) -> bool:
    position = consumer.position(topic, partition)
    return position is not None and position >= end


async def _offsets_at(bootstrap: str, topic: str, partitions: list[int], at: AtTime) -> dict[int, int]:
    """By partition the first offset at or after a time, and the end where there is none."""
    from strandline.client import LATEST

    # Ends first: what is appended meanwhile is not before the time.
    found = await _offsets(bootstrap, topic, partitions, LATEST, at.timestamp_ms)
    return {index: end or 0 if offset is None else offset for index, (end, offset) in found.items()}


async def _place(bootstrap: str, consumer: Consumer, plan: Plan) -> list[int]:
    """Assigns the partitions and goes to where reading begins. Returns the partitions."""
    start = plan.start
    wanted: list[str | tuple[str, int]] = [plan.topic]
    if plan.partitions is not None:
        wanted = [(plan.topic, index) for index in plan.partitions]
    assigned = await consumer.assign(wanted, start=start if isinstance(start, int | str) else "beginning")
    partitions = [index for _, index in assigned]
    if isinstance(start, AtTime):
        consumer.seek_to_time(start.timestamp_ms)
    elif isinstance(start, Last):
        from strandline.client import EARLIEST, LATEST

        found = await _offsets(bootstrap, plan.topic, partitions, LATEST, EARLIEST)
        for index, (end, first) in found.items():
            consumer.seek(plan.topic, index, max(first or 0, (end or 0) - start.count))
    return partitions


async def _offsets(
    bootstrap: str, topic: str, partitions: list[int], *times_ms: int
) -> dict[int, tuple[int | None, ...]]:
    """By partition the offset of each time, asked for in this order."""
    async with open_admin(bootstrap) as admin:
        found = [await admin.list_offsets(topic, partitions, timestamp_ms=time_ms) for time_ms in times_ms]
    return {index: tuple(one[index].offset for one in found) for index in partitions}
