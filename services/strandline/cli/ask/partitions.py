"""`strandline topic elect`, `offsets` and `describe --replicas`: the partitions of a topic, one row each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.connect import ask, over_tls, topics_named
from strandline.cli.durations import FORMS, read_moment_us, time_text
from strandline.cli.failures import EXIT_REFUSED, confirm
from strandline.cli.options import Bootstrap, Output, Topic, partition_list
from strandline.cli.output import NUMBER, TEXT, Column, Format, for_programs, plain_columns, show
from strandline.units import duration_text

if TYPE_CHECKING:
    from strandline.client import (
        Admin,
        DescribedFollower,
        DescribedLeader,
        DescribedPartition,
        DescribedReplica,
        DescribedTopic,
        Election,
        FoundOffset,
    )


# ---- topic_elect
# `strandline topic elect`: give leadership back to the preferred replicas, or end an outage by an unclean election.
#
# Invariant: exit code 0 means that every partition asked for has the leader that was wanted. An election that may lose
# acknowledged records is held only for a topic that was named, and only after a yes.

_COLUMNS = [
    Column("topic", "topic"),
    Column("partition", "partition", number=True),
    Column("leader", "leader", number=True),
    Column("leader_epoch", "epoch", number=True),
    Column("outcome", "outcome"),
]


@over_tls
def elect(
    bootstrap: Bootstrap,
    topic: Annotated[
        str | None,
        typer.Argument(metavar="[TOPIC]", help="Partitions of the topic; default: all that need an election."),
    ] = None,
    partition: Annotated[
        str | None, typer.Option("--partition", "-p", metavar="N[,...]", help="Only these partitions.")
    ] = None,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean", help="For partitions without a leader, elect any live replica; may lose acknowledged records."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --unclean: do not ask for confirmation.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Elect the preferred leader (the first assigned replica) of partitions, or with --unclean any living replica."""
    if topic is None and (unclean or partition is not None):
        raise typer.BadParameter("--unclean and --partition need a TOPIC")
    indexes = partition_list(partition)
    if unclean and not yes:
        confirm(f"acknowledged records of {topic} may be lost; elect unclean?", "no election was held")

    async def hold(admin: Admin) -> list[Election]:
        wanted = [] if topic is None else await _partitions(admin, topic, indexes)
        return await admin.elect_leaders(wanted, unclean=unclean)

    held = ask(bootstrap, hold)
    show([election_row(one) for one in held], _COLUMNS, output, empty="no partition needs an election")
    if any(is_unmet(one) for one in held):
        raise typer.Exit(EXIT_REFUSED)


async def _partitions(admin: Admin, name: str, indexes: list[int] | None) -> list[tuple[str, int]]:
    (topic,) = topics_named((await admin.metadata()).topics, name)
    return [(name, index) for index in (range(len(topic.partitions)) if indexes is None else indexes)]


def is_unmet(election: Election) -> bool:
    """Whether the partition does not have the leader that was asked for."""
    from strandline.client import ErrorCode

    return election.refusal is not None and election.refusal.code is not ErrorCode.ELECTION_NOT_NEEDED


def election_row(election: Election) -> dict[str, Any]:
    """What became of one election, as a row."""
    return {
        "topic": election.topic,
        "partition": election.partition,
        "leader": election.leader,
        "leader_epoch": election.leader_epoch,
        "elected": election.refusal is None,
        "outcome": "elected" if election.refusal is None else str(election.refusal),
    }


# ---- topic_offsets
# `strandline topic offsets`: where the partitions of a topic begin and end, and which offset belongs to a time.
#
# Invariant: every offset is the leader's own answer; the end is the HW, so nothing beyond it is ever shown.

_TOPIC_OFFSETS_COLUMNS = plain_columns(topic=TEXT, partition=NUMBER, earliest=NUMBER, latest=NUMBER, records=NUMBER)
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
    indexes = partition_list(partition)

    async def look(admin: Admin) -> list[dict[str, Any]]:
        from strandline.client import EARLIEST, LATEST, MAX_TIMESTAMP

        topics_named((await admin.metadata()).topics, topic)
        # Ends first: a beginning that moves meanwhile then never lies behind its end.
        ends = await admin.list_offsets(topic, indexes, timestamp_ms=LATEST)
        starts = await admin.list_offsets(topic, ends, timestamp_ms=EARLIEST)
        at_time = {} if at_ms is None else await admin.list_offsets(topic, ends, timestamp_ms=at_ms)
        last = await admin.list_offsets(topic, ends, timestamp_ms=MAX_TIMESTAMP) if max_timestamp else {}
        return [
            {
                "topic": topic,
                "partition": index,
                "earliest": starts[index].offset,
                "latest": end.offset,
                "records": (end.offset or 0) - (starts[index].offset or 0),
                **(_found(at_time[index], "offset_at_time", "time") if at_time else {}),
                **(_found(last[index], "newest_offset", "newest") if last else {}),
            }
            for index, end in sorted(ends.items())
        ]

    rows = ask(bootstrap, look)
    columns = _TOPIC_OFFSETS_COLUMNS + (_AT_TIME if at_ms is not None else []) + (_NEWEST if max_timestamp else [])
    show(rows if output is Format.TABLE else for_programs(rows), columns, output)


def _found(found: FoundOffset, offset_key: str, time_key: str) -> dict[str, Any]:
    return {
        offset_key: found.offset,
        f"{time_key}_ms": found.timestamp_ms,
        f"{time_key}_text": None if found.timestamp_ms is None else time_text(found.timestamp_ms * 1_000),
    }


# ---- topic_replicas
# `strandline topic describe --replicas`: how far every replica of a partition is.
#
# Invariant: what a replica says of itself (LEO, HW, state) comes from its own node, what it lacks (lag) from the
# leader; a node that does not answer leaves its columns empty and hides no replica.

REPLICA_COLUMNS = [
    Column("topic", "topic"),
    Column("partition", "partition", number=True),
    Column("node", "node", number=True),
    Column("role", "role"),
    Column("state", "state"),
    Column("log_start_offset", "log start", number=True),
    Column("leo", "LEO", number=True),
    Column("high_watermark", "HW", number=True),
    Column("lag_records", "lag", number=True),
    Column("caught_up_text", "caught up", number=True),
]


def replica_rows(
    topics: Iterable[DescribedTopic],
    led: Iterable[DescribedLeader],
    held: Iterable[DescribedReplica],
    is_wanted: Callable[[DescribedPartition], bool],
) -> Iterator[dict[str, Any]]:
    """One row per replica and observer of the partitions that are wanted, the preferred leader first."""
    views = {(view.topic, view.partition): view for view in led}
    selves = {(replica.topic, replica.partition, replica.node_id): replica for replica in held}
    for topic in topics:
        for partition in filter(is_wanted, topic.partitions):
            for node_id in (*partition.replicas, *partition.observers):
                name = topic.name, partition.partition
                yield _row(topic.name, partition, node_id, views.get(name), selves.get((*name, node_id)))


def _row(
    topic: str, partition: DescribedPartition, node_id: int, led: DescribedLeader | None, held: DescribedReplica | None
) -> dict[str, Any]:
    own = held.view if held is not None else None
    remote: DescribedFollower | None = None
    if led is not None:
        remote = next((replica for replica in led.replicas if replica.node_id == node_id), None)
    caught_up_ms = remote.last_caught_up_age_ms if remote is not None else None
    lag = _lag(partition, node_id, led, remote)
    return {
        "topic": topic,
        "partition": partition.partition,
        "node": node_id,
        "role": _role(partition, node_id),
        "state": _state(held),
        "log_start_offset": own.log_start_offset if own else None,
        "leo": own.leo if own else None,
        "durable_leo": own.durable_leo if own else None,
        "high_watermark": own.high_watermark if own else None,
        "lag_records": lag,
        "caught_up_age_ms": caught_up_ms,
        # A fetch of an idle partition is parked for long: of a replica that lacks nothing the age says nothing.
        "caught_up_text": f"{duration_text(caught_up_ms)} ago" if lag and caught_up_ms is not None else None,
        "size_bytes": held.size_bytes if held is not None else None,
    }


def _role(partition: DescribedPartition, node_id: int) -> str:
    if node_id == partition.leader:
        return "leader"
    if node_id in partition.isr:
        return "in sync"
    return "out of sync" if node_id in partition.replicas else "observer"


def _state(held: DescribedReplica | None) -> str:
    if held is None:
        return "no answer"
    if held.view is None:
        return str(held.refusal)
    return f"failed: {held.view.reason}" if held.view.reason else held.view.fetch_state


def _lag(
    partition: DescribedPartition, node_id: int, led: DescribedLeader | None, remote: DescribedFollower | None
) -> int | None:
    """Records that the leader has and the replica has not fetched; None: its leader does not know."""
    if led is None:
        return None
    if node_id == partition.leader:
        return 0
    return None if remote is None or remote.remote_leo is None else max(0, led.leo - remote.remote_leo)
