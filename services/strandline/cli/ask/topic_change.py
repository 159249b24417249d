"""`strandline topic add-partitions`, `configs` and `delete-records`.

Invariant: a change that cannot be undone needs a confirmation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from strandline.cli.connect import ask, over_tls
from strandline.cli.failures import EXIT_REFUSED, CommandFailed, confirm
from strandline.cli.options import Bootstrap, Output, Topic, partition_list
from strandline.cli.output import NUMBER, TEXT, Column, Format, plain_columns, show

if TYPE_CHECKING:
    from strandline.client import Admin, DeletedRecords


# ---- topic_add_partitions
# `strandline topic add-partitions`: more partitions for a topic, with what that changes for its users.
#
# Invariant: the number of partitions never falls; the controller refuses a number that is not higher.

_WARNING = (
    "records with a key may go to another partition from now on, and are in order within each partition only; "
    "consumers that were assigned single partitions do not read the new ones"
)


@over_tls
def add_partitions(
    topic: Topic,
    bootstrap: Bootstrap,
    total: Annotated[int, typer.Option("--total", "-t", min=2, help="The new number of partitions.")],
) -> None:
    """Add partitions to a topic. Records with a key may go to other partitions from then on."""
    ask(bootstrap, lambda admin: grow(admin, topic, total))


async def grow(admin: Admin, topic: str, total: int) -> None:
    """Add partitions until there are ``total``, and say on stderr what changes for records with keys.

    Raises:
        Refused: INVALID_PARTITIONS, UNKNOWN_TOPIC_OR_PARTITION.
    """
    await admin.create_partitions(topic, total)
    typer.echo(f"{topic} has {total} partitions now")
    typer.echo(f"warning: {_WARNING}", err=True)


# ---- topic_configs
# `strandline topic configs`: the effective settings of a topic, and where each comes from.
#
# Invariant: a value that each node has for itself is not shown as if the controller knew it.

_TOPIC_CONFIGS_COLUMNS = [
    Column("name", "setting"),
    Column("value", "value"),
    Column("source", "from"),
    Column("default", "default"),
]


@over_tls
def configs(
    topic: Topic,
    bootstrap: Bootstrap,
    name: Annotated[list[str] | None, typer.Option("--config", "-c", metavar="NAME", help="Only this setting.")] = None,
    output: Output = Format.TABLE,
) -> None:
    """Show the settings of a topic: value, where it comes from (topic, node, default), and the default."""
    found = ask(bootstrap, lambda admin: admin.describe_configs(topic, name or []))
    rows = [one._asdict() | {"source": one.source.value} for one in found]
    show(rows, _TOPIC_CONFIGS_COLUMNS, output, empty="no settings")


# ---- topic_delete_records
# `strandline topic delete-records`: delete the oldest records of partitions, up to an offset, on every replica.
#
# Invariant: nothing is deleted before the operator has seen how many records go and said yes; `latest` is the HW of
# that moment, so records that arrive meanwhile stay. Exit code 0 means that every in-sync replica has deleted.

_LATEST = "latest"
_COLUMNS = plain_columns(topic=TEXT, partition=NUMBER, low_watermark=NUMBER, outcome=TEXT)


class Planned(NamedTuple):
    """One partition and the records to delete from it: from ``log_start`` up to ``before``, exclusive."""

    partition: int
    log_start: int
    before: int
    high_watermark: int

    @property
    def records(self) -> int:
        """How many offsets are deleted."""
        return max(0, self.before - self.log_start)


@over_tls
def delete_records(
    topic: Topic,
    bootstrap: Bootstrap,
    partition: Annotated[str, typer.Option("--partition", "-p", metavar="N[,...]", help="The partitions.")],
    before: Annotated[
        str, typer.Option("--before", metavar="OFFSET|latest", help="The first offset to keep; latest: the HW.")
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Delete the records below an offset permanently; shows what would be deleted, and asks first."""
    indexes, offset = partition_list(partition) or [], _read_before(before)
    plan = ask(bootstrap, lambda admin: _plan(admin, topic, indexes, offset))
    if not yes:
        for one in plan:
            span = (
                f"{one.records} records, offsets {one.log_start} to {one.before - 1}" if one.records else "no records"
            )
            typer.echo(f"partition {one.partition} of {topic}: {span} (high watermark {one.high_watermark})", err=True)
        confirm("delete them permanently, on every replica?", "nothing was deleted")
    offsets = {one.partition: one.before for one in plan}
    deleted = ask(bootstrap, lambda admin: admin.delete_records(topic, offsets)).values()
    show([deleted_row(topic, one) for one in deleted], _COLUMNS, output)
    if any(one.refusal is not None for one in deleted):
        raise typer.Exit(EXIT_REFUSED)


def _read_before(text: str) -> int | None:
    """The offset, None for the HW.

    Raises:
        typer.BadParameter: it is neither.
    """
    if text == _LATEST:
        return None
    if not re.fullmatch("[0-9]{1,18}", text):
        raise typer.BadParameter(f"--before: {text!r} is not an offset; write a number of at least 0, or {_LATEST}")
    return int(text)


async def _plan(admin: Admin, name: str, indexes: Iterable[int], before: int | None) -> list[Planned]:
    """What would be deleted.

    Raises:
        CommandFailed: ``before`` is above the HW of a partition.
    """
    from strandline.client import EARLIEST, LATEST

    ends = await admin.list_offsets(name, indexes, timestamp_ms=LATEST)
    starts = await admin.list_offsets(name, ends, timestamp_ms=EARLIEST)
    plan = []
    for index, end in sorted(ends.items()):
        hw = end.offset or 0
        if before is not None and before > hw:
            reported = f"OFFSET_OUT_OF_RANGE: --before {before} is above the high watermark {hw} of partition {index}"
            raise CommandFailed(f"{reported}; nothing was deleted, give an offset up to {hw}, or {_LATEST}")
        plan.append(Planned(index, starts[index].offset or 0, hw if before is None else before, hw))
    return plan


def deleted_row(topic: str, deleted: DeletedRecords) -> dict[str, Any]:
    """The result of one deletion as a row."""
    return {
        "topic": topic,
        "partition": deleted.partition,
        "low_watermark": deleted.low_watermark,
        "deleted": deleted.refusal is None,
        "outcome": "deleted" if deleted.refusal is None else str(deleted.refusal),
    }
