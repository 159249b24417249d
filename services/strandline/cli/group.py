"""`strandline group ...`: which groups there are, how far they have read, and who reads.

Invariant: columns and their names are those of kafka-consumer-groups; an offset that is not committed is `-`, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.failures import CommandFailed, perform
from strandline.cli.group_delete import delete, delete_offsets
from strandline.cli.group_reset import reset_offsets
from strandline.cli.options import Bootstrap, Output
from strandline.cli.output import Column, Format, show
from strandline.cli.over_tls import over_tls

if TYPE_CHECKING:
    from strandline.cli.seen_group import SeenGroup
    from strandline.client import Admin, DescribedMember, ListedGroup, TopicPartition

app = typer.Typer(help="List, describe and delete groups; reset their offsets.", no_args_is_help=True)

app.command("reset-offsets")(reset_offsets)
app.command("delete")(delete)
app.command("delete-offsets")(delete_offsets)

STATES = ("Empty", "Assigning", "Reconciling", "Stable", "Dead")

_LISTED = [Column("group", "GROUP"), Column("type", "TYPE"), Column("state", "STATE")]
_OFFSETS = [
    Column("group", "GROUP"),
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", number=True),
    Column("current_offset", "CURRENT-OFFSET", number=True),
    Column("log_end_offset", "LOG-END-OFFSET", number=True),
    Column("lag", "LAG", number=True),
]
_SECONDS = [Column("lag_seconds", "LAG-SECONDS", number=True)]
_READERS = [
    Column("consumer_id", "CONSUMER-ID"),
    Column("host", "HOST"),
    Column("client_id", "CLIENT-ID"),
]
_MEMBERS = [
    Column("group", "GROUP"),
    Column("consumer_id", "CONSUMER-ID"),
    Column("instance_id", "INSTANCE-ID"),
    Column("host", "HOST"),
    Column("client_id", "CLIENT-ID"),
    Column("state", "STATE"),
    Column("partitions", "#PARTITIONS", number=True),
]
_VERBOSE = [
    Column("member_epoch", "EPOCH", number=True),
    Column("assignment", "ASSIGNMENT"),
    Column("target_assignment", "TARGET"),
    Column("revoking", "REVOKING"),
    Column("last_heartbeat_age_ms", "HEARTBEAT-AGE-MS", number=True),
]
_STATES = [
    Column("group", "GROUP"),
    Column("coordinator", "COORDINATOR", number=True),
    Column("assignor", "ASSIGNMENT-STRATEGY"),
    Column("state", "STATE"),
    Column("group_epoch", "GROUP-EPOCH", number=True),
    Column("assignment_epoch", "TARGET-EPOCH", number=True),
    Column("members", "#MEMBERS", number=True),
]


@app.callback()
def group() -> None:
    """List, describe and delete groups; reset their offsets."""


@app.command("list")
@over_tls
def list_groups(
    bootstrap: Bootstrap,
    state: Annotated[str | None, typer.Option(metavar="STATE[,...]", help=f"Only {', '.join(STATES)}.")] = None,
    output: Output = Format.TABLE,
) -> None:
    """List the groups of the cluster. Exit code 1 if a node did not answer for its own."""
    perform(_list(bootstrap, states_of(state), output))


@app.command()
@over_tls
def describe(
    bootstrap: Bootstrap,
    groups: Annotated[list[str] | None, typer.Argument(metavar="[GROUP]...", help="The groups.")] = None,
    all_groups: Annotated[bool, typer.Option("--all-groups", help="Every group.")] = False,
    offsets: Annotated[bool, typer.Option("--offsets", help="Offsets and lag by partition; the default.")] = False,
    members: Annotated[bool, typer.Option("--members", help="One row per member.")] = False,
    state: Annotated[bool, typer.Option("--state", help="One row per group.")] = False,
    seconds: Annotated[
        bool,
        typer.Option("--seconds", help="With offsets: how old the first record not consumed is."),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="With --members: what each reads, and is to read.")
    ] = False,
    output: Output = Format.TABLE,
) -> None:
    """Show the committed offsets and lag of groups, their members, or their state."""
    if bool(groups) == all_groups:
        raise typer.BadParameter("name a GROUP, or --all-groups, and not both")
    if offsets + members + state > 1:
        raise typer.BadParameter("give one of --offsets, --members and --state")
    if seconds and (members or state):
        raise typer.BadParameter("--seconds goes with --offsets: members and states have no lag")
    perform(_describe(bootstrap, groups or [], _columns(members, state, verbose, seconds), output))


def states_of(text: str | None) -> list[str]:
    """`stable,empty` as the states' own names; none without a text.

    Raises:
        typer.BadParameter: there is no such state.
    """
    known = {state.lower(): state for state in STATES}
    asked = [] if text is None else [entry.strip().lower() for entry in text.split(",")]
    unknown = next((entry for entry in asked if entry not in known), None)
    if unknown is not None:
        raise typer.BadParameter(f"--state: {unknown!r} is no state of a group; known are {', '.join(STATES)}")
    return [known[entry] for entry in asked]


def _columns(members: bool, state: bool, verbose: bool, seconds: bool) -> list[Column]:
    if state:
        return _STATES
    if members:
        return _MEMBERS + (_VERBOSE if verbose else [])
    return _OFFSETS + (_SECONDS if seconds else []) + _READERS


async def _list(bootstrap: str, states: list[str], form: Format) -> None:
    from strandline.cli.connect import open_admin

    async with open_admin(bootstrap) as admin:
        found, lacking = await _listed(admin, states)
    rows = [{"group": each.group_id, "type": each.type, "state": each.state} for each in found]
    show(rows, _LISTED, form, empty="no group")
    if lacking:
        raise CommandFailed("\n".join(lacking))


async def _listed(admin: Admin, states: list[str]) -> tuple[list[ListedGroup], list[str]]:
    """The groups of every living node, and one sentence for each node that lacks some."""
    from strandline.client import GroupsIncomplete

    try:
        return await admin.list_groups(states=states), []
    except GroupsIncomplete as incomplete:
        return incomplete.groups, [
            f"groups that node {node_id} coordinates may be missing: {why}"
            for node_id, why in incomplete.missing.items()
        ]


async def _describe(bootstrap: str, ids: list[str], columns: list[Column], form: Format) -> None:
    from strandline.cli.connect import open_admin
    from strandline.cli.seen_group import see

    lacking: list[str] = []
    async with open_admin(bootstrap) as admin:
        if not ids:
            found, lacking = await _listed(admin, [])
            ids = [each.group_id for each in found]
        with_ages = _SECONDS[0] in columns
        seen = [await see(admin, group_id, with_ages=with_ages) for group_id in dict.fromkeys(ids)]
    is_of_members = columns[: len(_MEMBERS)] == _MEMBERS
    if columns is _STATES:
        rows = [state_row(each) for each in seen]
    elif is_of_members:
        rows = [row for each in seen for row in member_rows(each)]
    else:
        rows = [row for each in seen for row in offset_rows(each, with_ages=with_ages)]
    show(rows, columns, form, empty="no member" if is_of_members else "no offset is committed")
    if lacking:
        raise CommandFailed("\n".join(lacking))


def offset_rows(seen: SeenGroup, *, with_ages: bool = False) -> list[dict[str, Any]]:
    """A row for each partition that is assigned or has an offset, in order."""
    readers: dict[tuple[str, int], DescribedMember] = {
        tp: member for member in seen.described.members for tp in member.assignment
    }
    return [
        {
            "group": seen.described.group_id,
            "topic": topic,
            "partition": index,
            "current_offset": seen.committed.get((topic, index)),
            "log_end_offset": seen.ends.get((topic, index)),
            "lag": seen.lag((topic, index)),
            **({"lag_seconds": seen.ages_s.get((topic, index))} if with_ages else {}),
            "consumer_id": reader.member_id if (reader := readers.get((topic, index))) else None,
            "host": reader.client_host if reader else None,
            "client_id": reader.client_id if reader else None,
        }
        for topic, index in sorted({*seen.committed, *readers})
    ]


def member_rows(seen: SeenGroup) -> list[dict[str, Any]]:
    """A row for each member."""
    return [
        {
            "group": seen.described.group_id,
            "consumer_id": member.member_id,
            "instance_id": member.instance_id,
            "host": member.client_host,
            "client_id": member.client_id,
            "state": member.state,
            "partitions": len(member.assignment),
            "member_epoch": member.member_epoch,
            "assignment": _named(member.assignment),
            "target_assignment": _named(member.target_assignment),
            "revoking": _named(member.revoking),
            "last_heartbeat_age_ms": member.last_heartbeat_age_ms,
        }
        for member in seen.described.members
    ]


def state_row(seen: SeenGroup) -> dict[str, Any]:
    """One group in one row."""
    described = seen.described
    return {
        "group": described.group_id,
        "coordinator": described.coordinator,
        "assignor": described.assignor or None,
        "state": described.state,
        "group_epoch": described.group_epoch,
        "assignment_epoch": described.assignment_epoch,
        "members": len(described.members),
    }


def _named(partitions: Iterable[TopicPartition]) -> list[str]:
    """`orders-0`, `orders-3`."""
    return [f"{topic}-{index}" for topic, index in partitions]
