"""`strandline group ...`: which groups there are, how far they have read, and who reads.

Invariant: columns and their names are those of kafka-consumer-groups; an offset that is not committed is `-`, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.ask.group_reset import reset_offsets, see, topic_choice
from strandline.cli.connect import ask, over_tls
from strandline.cli.failures import EXIT_REFUSED, CommandFailed, confirm
from strandline.cli.options import Bootstrap, Output, states_of
from strandline.cli.output import NUMBER, TEXT, Column, Format, kafka_columns, show

if TYPE_CHECKING:
    from strandline.cli.ask.group_reset import SeenGroup
    from strandline.client import Admin, DescribedMember, ListedGroup, Refusal, TopicPartition


# ---- group_delete
# `strandline group delete` and `delete-offsets`: unused groups, and offsets of topics that are no longer read.
#
# Invariant: what goes is named and confirmed first; a group with members, and offsets of a topic that members subscribe
# to, are refused by the coordinator.

_GROUPS = kafka_columns(group=TEXT, outcome=TEXT)
_GROUP_DELETE_OFFSETS = kafka_columns(group=TEXT, topic=TEXT, partition=NUMBER, outcome=TEXT)

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


@over_tls
def delete(
    groups: Annotated[list[str], typer.Argument(metavar="GROUP...", help="The groups; none may have members.")],
    bootstrap: Bootstrap,
    yes: Yes = False,
    output: Output = Format.TABLE,
) -> None:
    """Delete groups with their offsets; asks first. Exit code 1 if one was not deleted."""
    wanted = list(dict.fromkeys(groups))
    if not yes:
        confirm(f"delete {', '.join(wanted)} with all committed offsets?", "nothing was deleted")
    deleted = ask(bootstrap, lambda admin: admin.delete_groups(wanted))
    _show([{"group": group_id, **_outcome(refusal)} for group_id, refusal in deleted.items()], _GROUPS, output)


@over_tls
def delete_offsets(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The group.")],
    bootstrap: Bootstrap,
    topic: Annotated[
        list[str], typer.Option("--topic", "-t", metavar="TOPIC[:N,...]", help="Topics or partitions; repeatable.")
    ],
    yes: Yes = False,
    output: Output = Format.TABLE,
) -> None:
    """Delete a group's offsets of topics; asks first. Exit code 1 if one was not deleted."""
    chosen = [topic_choice(text) for text in topic]
    if not yes:
        confirm(f"delete the offsets of {group} in {', '.join(topic)}?", "nothing was deleted")
    deleted = ask(bootstrap, lambda admin: _delete_offsets(admin, group, chosen))
    rows = [
        {"group": group, "topic": topic, "partition": index, **_outcome(refusal)}
        for (topic, index), refusal in deleted.items()
    ]
    _show(rows, _GROUP_DELETE_OFFSETS, output)


def _show(rows: list[dict[str, Any]], columns: list[Column], form: Format) -> None:
    show(rows, columns, form, empty="no offset is committed there")
    if not all(row["deleted"] for row in rows):
        raise typer.Exit(EXIT_REFUSED)


async def _delete_offsets(
    admin: Admin, group_id: str, chosen: list[tuple[str, list[int] | None]]
) -> dict[TopicPartition, Refusal | None]:
    # A group that does not exist has no committed offsets either; only its description says that it does not exist.
    await admin.describe_groups([group_id])
    named = [
        (topic, index)
        for topic, index in sorted(await admin.list_group_offsets(group_id))
        if any(topic == name and (indexes is None or index in indexes) for name, indexes in chosen)
    ]
    return await admin.delete_group_offsets(group_id, named) if named else {}


def _outcome(refusal: Refusal | None) -> dict[str, Any]:
    return {"deleted": refusal is None, "outcome": "deleted" if refusal is None else str(refusal)}


app = typer.Typer(help="List, describe and delete groups; reset their offsets.", no_args_is_help=True)

app.command("reset-offsets")(reset_offsets)
app.command("delete")(delete)
app.command("delete-offsets")(delete_offsets)

STATES = ("Empty", "Assigning", "Reconciling", "Stable", "Dead")

_LISTED = kafka_columns(group=TEXT, type=TEXT, state=TEXT)
_OFFSETS = kafka_columns(
    group=TEXT, topic=TEXT, partition=NUMBER, current_offset=NUMBER, log_end_offset=NUMBER, lag=NUMBER
)
_SECONDS = kafka_columns(lag_seconds=NUMBER)
_READERS = kafka_columns(consumer_id=TEXT, host=TEXT, client_id=TEXT)
_MEMBERS = [
    *kafka_columns(group=TEXT, consumer_id=TEXT, instance_id=TEXT, host=TEXT, client_id=TEXT, state=TEXT),
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
    states = states_of(state, STATES, "group")
    found, lacking = ask(bootstrap, lambda admin: _listed(admin, states))
    rows = [{"group": each.group_id, "type": each.type, "state": each.state} for each in found]
    show(rows, _LISTED, output, empty="no group")
    if lacking:
        raise CommandFailed("\n".join(lacking))


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
        typer.Option("--seconds", help="With offsets: the age of the first record that is not consumed."),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="With --members: current and target partitions of each.")
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
    seen, lacking = ask(bootstrap, lambda admin: _see(admin, groups or [], with_ages=seconds))
    if state:
        show([state_row(each) for each in seen], _STATES, output, empty="no offset is committed")
    elif members:
        rows = [row for each in seen for row in member_rows(each)]
        show(rows, _MEMBERS + (_VERBOSE if verbose else []), output, empty="no member")
    else:
        rows = [row for each in seen for row in offset_rows(each, with_ages=seconds)]
        show(rows, _OFFSETS + (_SECONDS if seconds else []) + _READERS, output, empty="no offset is committed")
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


async def _see(admin: Admin, ids: list[str], *, with_ages: bool) -> tuple[list[SeenGroup], list[str]]:
    """These groups, or without ids all of them; and one sentence for each node that lacks some."""
    lacking: list[str] = []
    if not ids:
        found, lacking = await _listed(admin, [])
        ids = [each.group_id for each in found]
    return [await see(admin, group_id, with_ages=with_ages) for group_id in dict.fromkeys(ids)], lacking


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
