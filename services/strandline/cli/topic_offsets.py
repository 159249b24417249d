"""`strandline topic offsets`: where the partitions of a topic begin and end, and which offset belongs to a time.

Invariant: every offset is the leader's own answer; the end is the HW, so nothing beyond it is ever shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.failures import CommandFailed, perform
from strandline.cli.moments import FORMS, read_moment_us, time_text
from strandline.cli.options import Bootstrap, Output, Topic, partition_list
from strandline.cli.output import Column, Format, show
from strandline.cli.over_tls import over_tls

if TYPE_CHECKING:
    from strandline.client import Admin, FoundOffset

_COLUMNS = [
    Column("topic", "topic"),
    Column("partition", "partition", number=True),
    Column("earliest", "earliest", number=True),
    Column("latest", "latest", number=True),
    Column("records", "records", number=True),
]
_AT_TIME = [Column("offset_at_time", "offset at the time", number=True), Column("time_text", "its time (UTC)")]
_NEWEST = [Column("newest_offset", "newest record", number=True), Column("newest_text", "its time (UTC)")]


@over_tls
def offsets(
    topic: Topic,
    bootstrap: Bootstrap,
    partition: Annotated[
        str | None, typer.Option("--partition", "-p", metavar="N[,...]", help="Only these partitions.")
    ] = None,
    timestamp: Annotated[
        str | None, typer.Option(metavar="TIME", help=f"Also the first record at or after a time: {FORMS}.")
    ] = None,
    max_timestamp: Annotated[
        bool, typer.Option("--max-timestamp", help="Also the record with the highest timestamp.")
    ] = False,
    output: Output = Format.TABLE,
) -> None:
    """Show the first offset and the end (HW) of each partition."""
    at_ms = None if timestamp is None else read_moment_us(timestamp, "--timestamp") // 1_000
    perform(_offsets(bootstrap, topic, partition_list(partition), at_ms, max_timestamp, output))


async def _offsets(
    bootstrap: str, name: str, partitions: list[int] | None, at_ms: int | None, newest: bool, form: Format
) -> None:
    from strandline.cli.connect import open_admin
    from strandline.client import EARLIEST, LATEST, MAX_TIMESTAMP

    async with open_admin(bootstrap) as admin:
        await _check_known(admin, name)
        # Ends first: a beginning that moves meanwhile then never lies behind its end.
        ends = await admin.list_offsets(name, partitions, timestamp_ms=LATEST)
        starts = await admin.list_offsets(name, ends, timestamp_ms=EARLIEST)
        at_time = {} if at_ms is None else await admin.list_offsets(name, ends, timestamp_ms=at_ms)
        last = await admin.list_offsets(name, ends, timestamp_ms=MAX_TIMESTAMP) if newest else {}
    rows = [
        {
            "topic": name,
            "partition": index,
            "earliest": starts[index].offset,
            "latest": end.offset,
            "records": (end.offset or 0) - (starts[index].offset or 0),
            **(_found(at_time[index], "offset_at_time", "time") if at_time else {}),
            **(_found(last[index], "newest_offset", "newest") if last else {}),
        }
        for index, end in sorted(ends.items())
    ]
    if form is not Format.TABLE:
        rows = [{key: value for key, value in row.items() if not key.endswith("_text")} for row in rows]
    show(rows, [*_COLUMNS, *(_AT_TIME if at_time else []), *(_NEWEST if newest else [])], form)


async def _check_known(admin: Admin, name: str) -> None:
    image = await admin.metadata()
    if name not in {topic.name for topic in image.topics}:
        raise CommandFailed(f"UNKNOWN_TOPIC_OR_PARTITION: no topic is named {name!r}; see `strandline topic list`")


def _found(found: FoundOffset, offset_key: str, time_key: str) -> dict[str, Any]:
    return {
        offset_key: found.offset,
        f"{time_key}_ms": found.timestamp_ms,
        f"{time_key}_text": None if found.timestamp_ms is None else time_text(found.timestamp_ms * 1_000),
    }
