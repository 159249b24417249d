"""`strandline consume`: a topic's records on stdout, one per line.

Invariant: only committed records are printed, each partition's in order of offset; figures go to stderr, so that
stdout holds records and nothing else.
"""

from __future__ import annotations

import base64
import json
import sys
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from strandline.cli.failures import perform
from strandline.cli.moments import FORMS, read_moment_us
from strandline.cli.options import Bootstrap, Topic, addresses, partition_list
from strandline.cli.over_tls import over_tls, tls_options

if TYPE_CHECKING:
    from strandline.client import Consumer
    from strandline.records.codec import Record


class RecordForm(StrEnum):
    """How a record is printed."""

    TEXT = "text"
    JSON = "json"


@over_tls
def consume(
    topic: Topic,
    bootstrap: Bootstrap,
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="Begin with the oldest record.")] = False,
    offset: Annotated[int | None, typer.Option(min=0, help="Begin at this offset, in every partition read.")] = None,
    timestamp: Annotated[str | None, typer.Option(metavar="TIME", help=f"Begin at this time: {FORMS}.")] = None,
    partition: Annotated[
        str | None, typer.Option("--partition", "-p", metavar="N[,...]", help="Only these partitions.")
    ] = None,
    stop_at_end: Annotated[
        bool, typer.Option("--stop-at-end", help="Stop at the offsets where the partitions ended when reading began.")
    ] = False,
    max_records: Annotated[int | None, typer.Option("--max-records", "-n", min=1, help="End after so many.")] = None,
    from_follower: Annotated[
        bool, typer.Option("--from-follower", help="Read from followers, up to their high watermark.")
    ] = False,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", metavar="TEXT", help="Also print keys, separated by TEXT.")
    ] = None,
    output: Annotated[
        RecordForm, typer.Option("--output", "-o", help="Values as lines, or one json object per record.")
    ] = RecordForm.TEXT,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no figures at the end.")] = False,
) -> None:
    """Print a topic's records. Starts at the end by default, as Kafka's consumer does."""
    plan = Plan(
        topic=topic,
        partitions=partition_list(partition),
        start=start_of(from_beginning, offset, timestamp),
        stop_at_end=stop_at_end,
        max_records=max_records,
        from_follower=from_follower,
    )
    printer = Printer(form=output, key_separator=key_separator)
    perform(_consume(bootstrap, plan, printer))
    if not quiet and sys.stderr.isatty():
        typer.echo(f"{printer.printed:,} records", err=True)


@dataclass(frozen=True, slots=True)
class AtTime:
    """Begin at the first record at or after a time, in ms since 1970."""

    timestamp_ms: int


Start = Literal["beginning", "end"] | int | AtTime
"""Where reading begins; a number is an offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to read, from where, and until when. ``partitions`` None: all."""

    topic: str
    partitions: list[int] | None
    start: Start
    stop_at_end: bool
    max_records: int | None
    from_follower: bool


@dataclass(slots=True, kw_only=True)
class Printer:
    """Prints records to stdout and counts them."""

    form: RecordForm
    key_separator: str | None = None
    printed: int = 0

    def show(self, topic: str, partition: int, record: Record) -> None:
        """One record, one line."""
        self.printed += 1
        out = sys.stdout.buffer
        if self.form is RecordForm.JSON:
            out.write(json.dumps(record_document(topic, partition, record)).encode() + b"\n")
            return
        if self.key_separator is not None:
            out.write((record.key or b"") + self.key_separator.encode())
        out.write((record.value or b"") + b"\n")


async def _consume(bootstrap: str, plan: Plan, printer: Printer) -> None:
    from strandline.cli.connect import known_topic
    from strandline.client import Consumer

    consumer = Consumer(
        addresses(bootstrap),
        read_from="follower" if plan.from_follower else "leader",
        stop_at_end=plan.stop_at_end,
        **tls_options(),
    )
    async with consumer:
        async with known_topic(plan.topic):
            await _place(consumer, plan)
        while not (plan.stop_at_end and consumer.is_finished):
            for fetched in await consumer.fetch_batches():
                for record in fetched.records:
                    if printer.printed == plan.max_records:
                        break
                    printer.show(fetched.topic, fetched.partition, record)
            sys.stdout.flush()
            if printer.printed == plan.max_records:
                return


async def _place(consumer: Consumer, plan: Plan) -> None:
    """Assigns the partitions and goes to where reading begins."""
    wanted = [plan.topic] if plan.partitions is None else [(plan.topic, index) for index in plan.partitions]
    if isinstance(plan.start, AtTime):
        await consumer.assign(wanted)
        consumer.seek_to_time(plan.start.timestamp_ms)
    else:
        await consumer.assign(wanted, start=plan.start)


def start_of(from_beginning: bool, offset: int | None, timestamp: str | None) -> Start:
    """Where reading begins; at the end if nothing is said.

    Raises:
        typer.BadParameter: when more than one place is named, or the time cannot be read.
    """
    if sum((from_beginning, offset is not None, timestamp is not None)) > 1:
        raise typer.BadParameter("give one of --from-beginning, --offset and --timestamp")
    if offset is not None:
        return offset
    if timestamp is not None:
        return AtTime(read_moment_us(timestamp, "--timestamp") // 1_000)
    return "beginning" if from_beginning else "end"


def record_document(topic: str, partition: int, record: Record) -> dict[str, Any]:
    """A record for programs. Bytes that are no UTF-8 are given in base64 under `..._base64`."""
    document: dict[str, Any] = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **_text("key", record.key),
        **_text("value", record.value),
    }
    if record.headers:
        document["headers"] = [{"name": name, **_text("value", value)} for name, value in record.headers]
    return document


def _text(name: str, content: bytes | None) -> dict[str, str | None]:
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode()}
