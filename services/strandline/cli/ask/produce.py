"""`strandline produce`: every line of a file, or of stdin, becomes a record.

Invariant: exit code 0 means that every line was acknowledged as `--acks` asks; a line that was given up is
counted, and the message says whether it may still appear (promise P2).
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.ask import record_input
from strandline.cli.connect import known_topic, over_tls, tls_options
from strandline.cli.durations import FORMS, Duration, duration_option, read_duration, read_moment_us
from strandline.cli.failures import EXIT_REFUSED, EXIT_UNREACHABLE, CommandFailed, perform
from strandline.cli.options import Bootstrap, Topic, addresses
from strandline.cli.output import console
from strandline.units import bytes_text, count_of, duration_text

if TYPE_CHECKING:
    from rich.progress import Progress

    from strandline.client import BatchOutcome, Refused

_SHOW_EVERY_S = 0.1


class AcksName(StrEnum):
    """The replicas that an acknowledgement waits for."""

    NONE = "0"
    LEADER = "1"
    ALL = "all"


class CompressionName(StrEnum):
    """Codecs of a record batch."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


@dataclass(slots=True)
class Tally:
    """What was sent, acknowledged and given up so far."""

    sent: int = 0
    sent_bytes: int = 0
    acked: int = 0
    refused: int = 0
    first_refusal: str = ""
    began_s: float = field(default_factory=time.monotonic)

    def note(self, outcome: BatchOutcome) -> None:
        """One batch ended."""
        if outcome.refusal is None:
            self.acked += outcome.record_count
            return
        self.refused += outcome.record_count
        if not self.first_refusal:
            said = outcome.refusal.outcome.value.replace("_", " ") if outcome.refusal.outcome else "unknown outcome"
            self.first_refusal = f"{outcome.topic}-{outcome.partition}: {outcome.refusal} ({said})"

    def sentence(self) -> str:
        """The figures in one line."""
        elapsed_s = max(time.monotonic() - self.began_s, 1e-6)
        return (
            f"{self.acked:,} records acknowledged, {bytes_text(self.sent_bytes)} in {duration_text(elapsed_s * 1000)} "
            f"({self.acked / elapsed_s:,.0f} records/s, {bytes_text(self.sent_bytes / elapsed_s)}/s)"
        )


@over_tls
def produce(
    topic: Topic,
    bootstrap: Bootstrap,
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="File to read; default: stdin.")] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", metavar="TEXT", help="The key of every line.")] = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-K", metavar="TEXT", help="The separator of a line's key and its value."),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header of every record; repeatable."),
    ] = None,
    tombstones: Annotated[
        bool, typer.Option("--tombstones", "-Z", help="An empty value is null, which deletes its key.")
    ] = False,
    timestamp: Annotated[
        str | None, typer.Option(metavar="TIME", help=f"The records' timestamp: {FORMS}. Default: the time of sending.")
    ] = None,
    form: Annotated[
        record_input.InputForm,
        typer.Option("--input", help="Lines are values, or json objects as `consume -o json` prints them."),
    ] = record_input.InputForm.TEXT,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Send all lines to this partition.")
    ] = None,
    acks: Annotated[
        AcksName, typer.Option(help="Wait for no replica, the leader, or all in-sync replicas.")
    ] = AcksName.ALL,
    compression: Annotated[CompressionName, typer.Option(help="Codec of the batches.")] = CompressionName.NONE,
    idempotent: Annotated[bool, typer.Option(help="Retries never write a line twice.")] = True,
    linger: Annotated[
        Duration, duration_option("--linger", help="How long a batch waits for more lines.")
    ] = read_duration("5ms"),
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress and no summary.")] = False,
) -> None:
    """Send the lines of a file or of stdin to a topic, one record per line."""
    options: dict[str, Any] = {
        "acks": acks.value,
        "compression": compression.value,
        "idempotent": idempotent and acks is AcksName.ALL,
        "linger_ms": linger.ms,
    }
    common = record_input.Common(
        key=record_input.key_of(key),
        separator=None if key_separator is None else os.fsencode(key_separator),
        headers=record_input.headers_of(header or []),
        timestamp_ms=None if timestamp is None else read_moment_us(timestamp, "--timestamp") // 1_000,
        empty_is_tombstone=tombstones,
    )
    perform(_produce(bootstrap, topic, file, record_input.line_reader(form, common), partition, options, quiet))


async def _produce(
    bootstrap: str,
    topic: str,
    file: Path | None,
    read_line: record_input.ReadLine,
    partition: int | None,
    options: dict[str, Any],
    quiet: bool,
) -> None:
    from strandline.client import ErrorCode, Producer, Refused

    tally = Tally()
    wrong: record_input.BadLine | Refused | None = None
    with record_input.open_source(file) as source, _progress(file, quiet) as progress:
        async with Producer(addresses(bootstrap), on_delivery=tally.note, **tls_options(), **options) as producer:
            async with known_topic(topic):
                await producer.ready(topic)
            showing = asyncio.create_task(_show(progress, tally))
            try:
                async for line in record_input.lines_of(source):
                    try:
                        record = read_line(line)
                        await producer.send(
                            topic,
                            record.value,
                            record.key,
                            partition=partition,
                            timestamp_ms=record.timestamp_ms,
                            headers=record.headers,
                        )
                    except (record_input.BadLine, Refused) as error:
                        if isinstance(error, Refused) and error.refusal.code is ErrorCode.REQUEST_TIMED_OUT:
                            raise
                        # Lines that were read before it are still sent.
                        wrong = error
                        break
                    tally.sent += 1
                    tally.sent_bytes += len(line)
                    if tally.refused:
                        break
                await producer.flush()
            finally:
                showing.cancel()
    _report(tally, topic, wrong, quiet)


def _report(tally: Tally, topic: str, wrong: record_input.BadLine | Refused | None, quiet: bool) -> None:
    if tally.refused:
        raise CommandFailed(f"{tally.refused:,} of {tally.sent:,} records refused; {tally.first_refusal}")
    if wrong is not None:
        raise CommandFailed(
            f"line {tally.sent + 1:,}: {wrong}; {count_of(tally.acked, 'record')} before it acknowledged, no more sent",
            EXIT_UNREACHABLE if isinstance(wrong, record_input.BadLine) else EXIT_REFUSED,
        )
    if not quiet:
        console(stderr=True).print(f"{topic}: {tally.sentence()}")


def _progress(file: Path | None, quiet: bool) -> Progress:
    """A line that shows rate and acks; on a terminal only."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    target = console(stderr=True)
    columns = [TextColumn("{task.description}"), BarColumn(bar_width=30), TextColumn("{task.fields[figures]}")]
    progress = Progress(
        *columns, TimeElapsedColumn(), console=target, disable=quiet or not target.is_terminal, transient=True
    )
    total = file.stat().st_size if file is not None and file.is_file() else None
    progress.add_task("sending", total=total, figures="")
    return progress


async def _show(progress: Progress, tally: Tally) -> None:
    while True:
        elapsed_s = max(time.monotonic() - tally.began_s, 1e-6)
        rate = bytes_text(tally.sent_bytes / elapsed_s)
        figures = f"{tally.acked:,} acked, {tally.sent - tally.acked:,} under way, {rate}/s"
        for task_id in progress.task_ids:
            progress.update(task_id, completed=tally.sent_bytes, figures=figures)
        await asyncio.sleep(_SHOW_EVERY_S)
