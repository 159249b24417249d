"""`strandline topic elect`: give leadership back to the preferred replicas, or end an outage by an unclean election.

Invariant: exit code 0 means that every partition asked for has the leader that was wanted. An election that may lose
acknowledged records is held only for a topic that was named, and only after a yes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.failures import EXIT_REFUSED, CommandFailed, fail, perform
from strandline.cli.options import Bootstrap, Output, partition_list
from strandline.cli.output import Column, Format, show
from strandline.cli.over_tls import over_tls

if TYPE_CHECKING:
    from strandline.client import Admin, Election

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
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --unclean: do not ask.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Elect the preferred leader (the first assigned replica) of partitions, or with --unclean any living replica."""
    if topic is None and (unclean or partition is not None):
        raise typer.BadParameter("name the TOPIC that --unclean or --partition is about")
    indexes = partition_list(partition)
    if unclean and not yes:
        _confirm(topic)
    perform(_elect(bootstrap, topic, indexes, unclean, output))


def _confirm(topic: str | None) -> None:
    try:
        agreed = typer.confirm(f"acknowledged records of {topic} may be lost; elect unclean?", err=True)
    except typer.Abort:
        agreed = False
    if not agreed:
        raise fail(CommandFailed("nobody was elected: it was not confirmed; answer y, or give --yes"))


async def _elect(bootstrap: str, topic: str | None, indexes: list[int] | None, unclean: bool, form: Format) -> None:
    from strandline.cli.connect import open_admin

    async with open_admin(bootstrap) as admin:
        wanted = [] if topic is None else await _partitions(admin, topic, indexes)
        held = await admin.elect_leaders(wanted, unclean=unclean)
    show([election_row(one) for one in held], _COLUMNS, form, empty="no partition needs an election")
    if any(is_unmet(one) for one in held):
        raise typer.Exit(EXIT_REFUSED)


async def _partitions(admin: Admin, name: str, indexes: list[int] | None) -> list[tuple[str, int]]:
    image = await admin.metadata()
    count = next((len(topic.partitions) for topic in image.topics if topic.name == name), None)
    if count is None:
        raise CommandFailed(f"UNKNOWN_TOPIC_OR_PARTITION: no topic is named {name!r}; see `strandline topic list`")
    return [(name, index) for index in (range(count) if indexes is None else indexes)]


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
