"""`strandline txn ...`: which transactions there are, whose they are, and how to end one that stays open.

Invariant: nothing is changed without --execute; an age that is not known is `-`, never 0.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.ask.group_reset import topic_choice
from strandline.cli.ask.txn_change import abort, fence, partition_of
from strandline.cli.connect import over_tls
from strandline.cli.durations import Duration, duration_option, read_duration
from strandline.cli.failures import EXIT_REFUSED, CommandFailed, perform
from strandline.cli.options import Bootstrap, Output, states_of
from strandline.cli.output import Column, Format, show

if TYPE_CHECKING:
    from strandline import client

app = typer.Typer(help="List and describe transactions; find and abort those that hang.", no_args_is_help=True)

app.command("abort")(abort)
app.command("fence")(fence)

STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
LONGEST = "15m"
"""The longest time-out that a producer may ask for by default."""

_LISTED = [
    Column("transactional_id", "TRANSACTIONAL-ID"),
    Column("producer_id", "PRODUCER-ID", number=True),
    Column("state", "STATE"),
    Column("open_seconds", "OPEN-SECONDS", number=True),
]
_DESCRIBED = [
    Column("transactional_id", "TRANSACTIONAL-ID"),
    Column("coordinator", "COORDINATOR", number=True),
    Column("producer_id", "PRODUCER-ID", number=True),
    Column("producer_epoch", "EPOCH", number=True),
    Column("state", "STATE"),
    Column("timeout_ms", "TIMEOUT-MS", number=True),
    Column("open_seconds", "OPEN-SECONDS", number=True),
    Column("partitions", "WITHOUT-MARKER"),
]
_PRODUCERS = [
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", number=True),
    Column("producer_id", "PRODUCER-ID", number=True),
    Column("producer_epoch", "EPOCH", number=True),
    Column("last_sequence", "LAST-SEQUENCE", number=True),
    Column("silent_seconds", "SILENT-SECONDS", number=True),
    Column("coordinator_epoch", "COORDINATOR-EPOCH", number=True),
    Column("open_since_offset", "OPEN-SINCE-OFFSET", number=True),
]
_HANGING = [
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", number=True),
    Column("start_offset", "START-OFFSET", number=True),
    Column("producer_id", "PRODUCER-ID", number=True),
    Column("producer_epoch", "EPOCH", number=True),
    Column("silent_seconds", "SILENT-SECONDS", number=True),
    Column("transactional_id", "TRANSACTIONAL-ID"),
    Column("why", "WHY"),
]


@app.callback()
def txn() -> None:
    """List and describe transactions; find and abort those that hang."""


@app.command("list")
@over_tls
def list_transactions(
    bootstrap: Bootstrap,
    state: Annotated[str | None, typer.Option(metavar="STATE[,...]", help=f"Only {', '.join(STATES)}.")] = None,
    older_than: Annotated[
        Duration | None,
        duration_option("--older-than", help="Only transactions that have been open for longer."),
    ] = None,
    producer_id: Annotated[list[int] | None, typer.Option(help="Only of this producer id; repeatable.")] = None,
    output: Output = Format.TABLE,
) -> None:
    """List the transactional ids of the cluster. Exit code 1 if a node did not answer for its own."""
    perform(_list(bootstrap, states_of(state, STATES, "transaction"), older_than, producer_id or [], output))


@app.command()
@over_tls
def describe(
    bootstrap: Bootstrap,
    transactional_ids: Annotated[list[str], typer.Argument(metavar="ID...", help="The transactional ids.")],
    output: Output = Format.TABLE,
) -> None:
    """Show transactional ids with their transaction, and which partitions of it have no marker yet."""
    perform(_describe(bootstrap, transactional_ids, output))


@app.command()
@over_tls
def producers(
    bootstrap: Bootstrap,
    partition: Annotated[str, typer.Argument(metavar="TOPIC-N", help="The partition, orders-3 for example.")],
    output: Output = Format.TABLE,
) -> None:
    """Show which producers the log of a partition remembers, and which have a transaction open there."""
    perform(_producers(bootstrap, *partition_of(partition), output))


@app.command("find-hanging")
@over_tls
def find_hanging(
    bootstrap: Bootstrap,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", metavar="TOPIC[:N,...]", help="Topics or partitions; repeatable; default: all."),
    ] = None,
    older_than: Annotated[
        Duration,
        duration_option("--older-than", help="How long their producer was not heard; the longest time-out there is."),
    ] = read_duration(LONGEST),
    output: Output = Format.TABLE,
) -> None:
    """Find transactions that stay open, because their coordinator does not know them or knows them ended.

    Exit code 1 if there is one; `strandline txn abort` ends it.
    """
    perform(_find_hanging(bootstrap, [topic_choice(text) for text in topic or []], older_than, output))


async def _list(
    bootstrap: str, states: list[str], older_than: Duration | None, producer_ids: list[int], form: Format
) -> None:
    from strandline.cli.connect import open_admin
    from strandline.client import TransactionsIncomplete

    lacking: list[str] = []
    async with open_admin(bootstrap) as admin:
        try:
            longer_than_ms = None if older_than is None else int(older_than.ms)
            found = await admin.list_transactions(
                states=states, producer_ids=producer_ids, longer_than_ms=longer_than_ms
            )
        except TransactionsIncomplete as incomplete:
            found = incomplete.transactions
            lacking = [
                f"transactional ids that node {node_id} coordinates may be missing: {why}"
                for node_id, why in incomplete.missing.items()
            ]
    now_ms = time.time() * 1_000
    show([listed_row(each, now_ms) for each in found], _LISTED, form, empty="no transactional id")
    if lacking:
        raise CommandFailed("\n".join(lacking))


async def _describe(bootstrap: str, ids: list[str], form: Format) -> None:
    from strandline.cli.connect import open_admin

    async with open_admin(bootstrap) as admin:
        found = await admin.describe_transactions(dict.fromkeys(ids))
    now_ms = time.time() * 1_000
    show([described_row(each, now_ms) for each in found], _DESCRIBED, form)


async def _producers(bootstrap: str, topic: str, partition: int, form: Format) -> None:
    from strandline.cli.connect import open_admin

    async with open_admin(bootstrap) as admin:
        found = await admin.describe_producers(topic, [partition])
    now_ms = time.time() * 1_000
    show([producer_row(each, now_ms) for each in found], _PRODUCERS, form, empty="no producer is remembered there")


async def _find_hanging(
    bootstrap: str, chosen: list[tuple[str, list[int] | None]], older_than: Duration, form: Format
) -> None:
    from strandline.cli.connect import open_admin

    async with open_admin(bootstrap) as admin:
        found = await hanging(admin, chosen, int(older_than.ms))
    now_ms = time.time() * 1_000
    show([hanging_row(each, now_ms) for each in found], _HANGING, form, empty="no transaction hangs")
    if found:
        raise typer.Exit(EXIT_REFUSED)


async def hanging(
    admin: client.Admin, chosen: list[tuple[str, list[int] | None]], older_than_ms: int
) -> list[client.HangingTransaction]:
    """The hanging transactions of these topics' partitions; without topics of all that transactions can write to."""
    if not chosen:
        topics = (await admin.metadata()).topics
        chosen = [(topic.name, None) for topic in topics if not topic.name.startswith("__")]
    found = []
    for topic, partitions in chosen:
        found += await admin.find_hanging_transactions(topic, partitions, older_than_ms=older_than_ms)
    return found


def listed_row(listed: client.ListedTransaction, now_ms: float) -> dict[str, Any]:
    """One transactional id of a list."""
    return {
        "transactional_id": listed.transactional_id,
        "producer_id": listed.producer_id,
        "state": listed.state,
        "open_seconds": _seconds_since(listed.start_ms, now_ms),
    }


def described_row(described: client.DescribedTransaction, now_ms: float) -> dict[str, Any]:
    """One transactional id in full."""
    return {
        "transactional_id": described.transactional_id,
        "coordinator": described.coordinator,
        "producer_id": described.producer_id,
        "producer_epoch": described.producer_epoch,
        "state": described.state,
        "timeout_ms": described.timeout_ms,
        "open_seconds": _seconds_since(described.start_ms, now_ms),
        "partitions": [f"{topic}-{index}" for topic, index in described.partitions],
    }


def producer_row(producer: client.PartitionProducer, now_ms: float) -> dict[str, Any]:
    """One producer of a partition."""
    return {
        "topic": producer.topic,
        "partition": producer.partition,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "last_sequence": producer.last_sequence,
        "silent_seconds": _seconds_since(producer.last_timestamp_ms, now_ms),
        "coordinator_epoch": producer.coordinator_epoch,
        "open_since_offset": producer.open_since_offset,
    }


def hanging_row(found: client.HangingTransaction, now_ms: float) -> dict[str, Any]:
    """One transaction that hangs."""
    return {
        "topic": found.producer.topic,
        "partition": found.producer.partition,
        "start_offset": found.producer.open_since_offset,
        "producer_id": found.producer.producer_id,
        "producer_epoch": found.producer.producer_epoch,
        "silent_seconds": _seconds_since(found.producer.last_timestamp_ms, now_ms),
        "transactional_id": found.transactional_id,
        "why": found.why,
    }


def _seconds_since(at_ms: int | None, now_ms: float) -> float | None:
    return None if at_ms is None else round(max(0.0, now_ms - at_ms) / 1_000, 1)
