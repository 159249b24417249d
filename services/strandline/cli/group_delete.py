"""`strandline group delete` and `delete-offsets`: groups that nobody needs, and offsets of topics that nobody reads.

Invariant: what goes is named and confirmed first; a group with members, and offsets of a topic that members subscribe
to, are refused by the coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.failures import EXIT_REFUSED, CommandFailed, fail, perform
from strandline.cli.group_reset import topic_choice
from strandline.cli.options import Bootstrap, Output
from strandline.cli.output import Column, Format, show
from strandline.cli.over_tls import over_tls

if TYPE_CHECKING:
    from strandline.client import Refusal

_GROUPS = [Column("group", "GROUP"), Column("outcome", "OUTCOME")]
_OFFSETS = [
    Column("group", "GROUP"),
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", number=True),
    Column("outcome", "OUTCOME"),
]

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@over_tls
def delete(
    groups: Annotated[list[str], typer.Argument(metavar="GROUP...", help="The groups; none may have members.")],
    bootstrap: Bootstrap,
    yes: Yes = False,
    output: Output = Format.TABLE,
) -> None:
    """Delete groups with their offsets; asks first. Exit code 1 if one was not deleted."""
    wanted = list(dict.fromkeys(groups))
    _confirm(f"delete {', '.join(wanted)} with all committed offsets?", yes)
    _show(perform(_delete(bootstrap, wanted)), _GROUPS, output)


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
    _confirm(f"delete the offsets of {group} in {', '.join(topic)}?", yes)
    _show(perform(_delete_offsets(bootstrap, group, chosen)), _OFFSETS, output)


def _confirm(question: str, yes: bool) -> None:
    """Asks for a yes.

    Raises:
        typer.Exit: it was not given.
    """
    try:
        agreed = yes or typer.confirm(question, err=True)
    except typer.Abort:
        agreed = False
    if not agreed:
        raise fail(CommandFailed("nothing was deleted: it was not confirmed; answer y, or give --yes"))


def _show(rows: list[dict[str, Any]], columns: list[Column], form: Format) -> None:
    show(rows, columns, form, empty="no offset is committed there")
    if not all(row["deleted"] for row in rows):
        raise typer.Exit(EXIT_REFUSED)


async def _delete(bootstrap: str, ids: list[str]) -> list[dict[str, Any]]:
    from strandline.cli.connect import open_admin

    async with open_admin(bootstrap) as admin:
        deleted = await admin.delete_groups(ids)
    return [{"group": group_id, **_outcome(refusal)} for group_id, refusal in deleted.items()]


async def _delete_offsets(
    bootstrap: str, group_id: str, chosen: list[tuple[str, list[int] | None]]
) -> list[dict[str, Any]]:
    from strandline.cli.connect import open_admin

    async with open_admin(bootstrap) as admin:
        # Of a group that is not there nothing is committed either; only its description says that it is not.
        await admin.describe_groups([group_id])
        committed = await admin.list_group_offsets(group_id)
        named = [
            (topic, index)
            for topic, index in sorted(committed)
            if any(topic == name and (indexes is None or index in indexes) for name, indexes in chosen)
        ]
        deleted = await admin.delete_group_offsets(group_id, named) if named else {}
    return [
        {"group": group_id, "topic": topic, "partition": index, **_outcome(refusal)}
        for (topic, index), refusal in deleted.items()
    ]


def _outcome(refusal: Refusal | None) -> dict[str, Any]:
    return {"deleted": refusal is None, "outcome": "deleted" if refusal is None else str(refusal)}
