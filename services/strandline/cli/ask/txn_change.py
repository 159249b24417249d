"""`strandline txn abort` and `fence`: end a transaction that its producer and coordinator do not end.

Invariant: nothing is changed without --execute; what is changed is what was shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.connect import ask, over_tls
from strandline.cli.options import Bootstrap, Output
from strandline.cli.output import Column, Format, show

if TYPE_CHECKING:
    from strandline.client import Admin, DescribedTransaction, PartitionProducer

# ---- txn_partition
# How one partition is named to `strandline txn`: `orders-3`, as its answers and the log's folder name it.


def partition_of(text: str) -> tuple[str, int]:
    """`orders-3` as topic and partition; the topic's own name may have hyphens.

    Raises:
        typer.BadParameter: the text does not end in a hyphen and a number.
    """
    topic, hyphen, number = text.rpartition("-")
    if not (topic and hyphen and number.isdecimal()):
        raise typer.BadParameter(f"{text!r} names no partition; write the topic, a hyphen and a number: orders-3")
    return topic, int(number)


_ABORTED = [
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", number=True),
    Column("start_offset", "START-OFFSET", number=True),
    Column("producer_id", "PRODUCER-ID", number=True),
    Column("producer_epoch", "EPOCH", number=True),
    Column("marker_epoch", "MARKER-EPOCH", number=True),
    Column("outcome", "OUTCOME"),
]
_FENCED = [
    Column("transactional_id", "TRANSACTIONAL-ID"),
    Column("producer_id", "PRODUCER-ID", number=True),
    Column("producer_epoch", "EPOCH", number=True),
    Column("state", "STATE"),
    Column("partitions", "WITHOUT-MARKER"),
    Column("outcome", "OUTCOME"),
]

Execute = Annotated[bool, typer.Option("--execute", help="Apply the plan; without it the plan is only shown.")]


@over_tls
def abort(
    bootstrap: Bootstrap,
    partition: Annotated[str, typer.Argument(metavar="TOPIC-N", help="The partition, orders-3 for example.")],
    start_offset: Annotated[int, typer.Option(min=0, help="Its first offset, as find-hanging shows it.")],
    execute: Execute = False,
    output: Output = Format.TABLE,
) -> None:
    """Abort a transaction in one partition, regardless of its coordinator: only for one that hangs.

    Its other partitions are not changed: if the transaction is alive they may still be committed.
    """
    topic, index = partition_of(partition)

    async def end(admin: Admin) -> PartitionProducer:
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

    async def take(admin: Admin) -> tuple[DescribedTransaction, tuple[int, int]]:
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
