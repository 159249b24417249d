"""`strandline txn ...`: list and describe transactions and their producers; find and end those that hang.

Invariant: nothing is changed without --execute; an unknown age is shown as `-`, never 0.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.ask.group_reset import topic_choice
from strandline.cli.connect import ask, over_tls
from strandline.cli.durations import Duration, duration_option, read_duration
from strandline.cli.failures import EXIT_REFUSED, CommandFailed
from strandline.cli.options import Bootstrap, Output, states_of
from strandline.cli.output import NUMBER, TEXT, Column, Format, kafka_columns, show

if TYPE_CHECKING:
    from strandline import client

app = typer.Typer(help="List and describe transactions; find and abort those that hang.", no_args_is_help=True)

STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
LONGEST = "15m"
"""The longest time-out that a producer may ask for by default."""

_EPOCH = Column("producer_epoch", "EPOCH", number=True)
_LISTED = kafka_columns(transactional_id=TEXT, producer_id=NUMBER, state=TEXT, open_seconds=NUMBER)
_DESCRIBED = [
    *kafka_columns(transactional_id=TEXT, coordinator=NUMBER, producer_id=NUMBER),
    _EPOCH,
    *kafka_columns(state=TEXT, timeout_ms=NUMBER, open_seconds=NUMBER),
    Column("partitions", "WITHOUT-MARKER"),
]
_PRODUCERS = [
    *kafka_columns(topic=TEXT, partition=NUMBER, producer_id=NUMBER),
    _EPOCH,
    *kafka_columns(last_sequence=NUMBER, silent_seconds=NUMBER, coordinator_epoch=NUMBER, open_since_offset=NUMBER),
]
_HANGING = [
    *kafka_columns(topic=TEXT, partition=NUMBER, start_offset=NUMBER, producer_id=NUMBER),
    _EPOCH,
    *kafka_columns(silent_seconds=NUMBER, transactional_id=TEXT, why=TEXT),
]
_ABORTED = [
    *kafka_columns(topic=TEXT, partition=NUMBER, start_offset=NUMBER, producer_id=NUMBER),
    _EPOCH,
    *kafka_columns(marker_epoch=NUMBER, outcome=TEXT),
]
_FENCED = [
    *kafka_columns(transactional_id=TEXT, producer_id=NUMBER),
    _EPOCH,
    *kafka_columns(state=TEXT),
    Column("partitions", "WITHOUT-MARKER"),
    *kafka_columns(outcome=TEXT),
]


@app.callback()
def txn() -> None:
    """List and describe transactions; find and abort those that hang."""


# ---- change
# `strandline txn abort` and `fence`: end a transaction that its producer and coordinator do not end.
#
# Invariant: what is changed is what was shown.

Execute = Annotated[bool, typer.Option("--execute", help="Apply the plan; without it the plan is only shown.")]


@app.command()
@over_tls
def abort(
    bootstrap: Bootstrap,
    partition: Annotated[str, typer.Argument(metavar="TOPIC-N", help="The partition, orders-3 for example.")],
    start_offset: Annotated[int, typer.Option(min=0, help="The transaction's first offset, as find-hanging shows it.")],
    execute: Execute = False,
    output: Output = Format.TABLE,
) -> None:
    """Abort a transaction in one partition, regardless of its coordinator: only for one that hangs.

    Its other partitions are not changed: if the transaction is alive they may still be committed.
    """
    topic, index = partition_of(partition)

    async def end(admin: client.Admin) -> client.PartitionProducer:
        act = admin.abort_transaction if execute else admin.open_transaction
        return await act(topic, index, start_offset=start_offset)

    producer = ask(bootstrap, end)
    row = {
        "topic": topic,
        "partition": index,
        "start_offset": start_offset,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "marker_epoch": producer.producer_epoch + 1,
        "aborted": execute,
        "outcome": "aborted" if execute else "would be aborted",
    }
    show([row], _ABORTED, output)
    _say_if_dry(execute)


@app.command()
@over_tls
def fence(
    bootstrap: Bootstrap,
    transactional_id: Annotated[str, typer.Argument(metavar="ID", help="The transactional id.")],
    execute: Execute = False,
    output: Output = Format.TABLE,
) -> None:
    """Abort the transaction of a transactional id in all its partitions, and fence its producer.

    The producer's next request fails with PRODUCER_FENCED or INVALID_PRODUCER_EPOCH; a new one may begin at once.
    """

    async def take(admin: client.Admin) -> tuple[client.DescribedTransaction, tuple[int, int]]:
        (seen,) = await admin.describe_transactions([transactional_id])
        identity = seen.producer_id, seen.producer_epoch
        return seen, await admin.fence_transactional_id(transactional_id) if execute else identity

    seen, (producer_id, producer_epoch) = ask(bootstrap, take)
    row = {
        "transactional_id": transactional_id,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "state": seen.state,
        "partitions": [f"{topic}-{index}" for topic, index in seen.partitions],
        "fenced": execute,
        "outcome": "fenced" if execute else "would be fenced",
    }
    show([row], _FENCED, output)
    _say_if_dry(execute)


def _say_if_dry(execute: bool) -> None:
    if not execute:
        typer.echo("strandline: nothing was changed: this was a dry run; --execute applies it", err=True)


# ---- look
# `strandline txn list`, `describe`, `producers` and `find-hanging`.


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
    states = states_of(state, STATES, "transaction")
    longer_than_ms = None if older_than is None else int(older_than.ms)
    found, lacking = ask(bootstrap, lambda admin: _listed(admin, states, producer_id or [], longer_than_ms))
    now_ms = time.time() * 1_000
    show([listed_row(each, now_ms) for each in found], _LISTED, output, empty="no transactional id")
    if lacking:
        raise CommandFailed("\n".join(lacking))


@app.command()
@over_tls
def describe(
    bootstrap: Bootstrap,
    transactional_ids: Annotated[list[str], typer.Argument(metavar="ID...", help="The transactional ids.")],
    output: Output = Format.TABLE,
) -> None:
    """Show transactional ids with their transaction, and which partitions of it have no marker yet."""
    found = ask(bootstrap, lambda admin: admin.describe_transactions(dict.fromkeys(transactional_ids)))
    now_ms = time.time() * 1_000
    show([described_row(each, now_ms) for each in found], _DESCRIBED, output)


@app.command()
@over_tls
def producers(
    bootstrap: Bootstrap,
    partition: Annotated[str, typer.Argument(metavar="TOPIC-N", help="The partition, orders-3 for example.")],
    output: Output = Format.TABLE,
) -> None:
    """Show which producers the log of a partition remembers, and which have a transaction open there."""
    topic, index = partition_of(partition)
    found = ask(bootstrap, lambda admin: admin.describe_producers(topic, [index]))
    now_ms = time.time() * 1_000
    show([producer_row(each, now_ms) for each in found], _PRODUCERS, output, empty="no producer is remembered there")


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
        duration_option("--older-than", help="Silence of their producers; default: the longest time-out."),
    ] = read_duration(LONGEST),
    output: Output = Format.TABLE,
) -> None:
    """Find open transactions that will never end, because their coordinator does not know them or has ended them.

    Exit code 1 if there is one; `strandline txn abort` ends it.
    """
    chosen = [topic_choice(text) for text in topic or []]
    found = ask(bootstrap, lambda admin: hanging(admin, chosen, int(older_than.ms)))
    now_ms = time.time() * 1_000
    show([hanging_row(each, now_ms) for each in found], _HANGING, output, empty="no transaction hangs")
    if found:
        raise typer.Exit(EXIT_REFUSED)


async def _listed(
    admin: client.Admin, states: list[str], producer_ids: list[int], longer_than_ms: int | None
) -> tuple[list[client.ListedTransaction], list[str]]:
    """The transactional ids of every living node, and one sentence for each node that lacks some."""
    from strandline.client import TransactionsIncomplete

    try:
        listed = await admin.list_transactions(states=states, producer_ids=producer_ids, longer_than_ms=longer_than_ms)
        return listed, []
    except TransactionsIncomplete as incomplete:
        return incomplete.transactions, [
            f"transactional ids that node {node_id} coordinates may be missing: {why}"
            for node_id, why in incomplete.missing.items()
        ]


async def hanging(
    admin: client.Admin, chosen: list[tuple[str, list[int] | None]], older_than_ms: int
) -> list[client.HangingTransaction]:
    """The hanging transactions in these topics' partitions, or without topics in all that transactions can write to."""
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


def partition_of(text: str) -> tuple[str, int]:
    """`orders-3` as topic and partition; the topic's own name may have hyphens.

    Raises:
        typer.BadParameter: the text does not end in a hyphen and a number.
    """
    topic, hyphen, number = text.rpartition("-")
    if not (topic and hyphen and re.fullmatch("[0-9]{1,9}", number)):
        raise typer.BadParameter(f"{text!r} names no partition; write the topic, a hyphen and a number: orders-3")
    return topic, int(number)
