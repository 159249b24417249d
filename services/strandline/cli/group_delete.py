"""`strandline group delete` and `delete-offsets`: groups that nobody needs, and offsets of topics that nobody reads.

Invariant: what goes is named and confirmed first; a group with members, and offsets of a topic that members subscribe
to, are refused by the coordinator.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from strandline.cli.failures import EXIT_REFUSED, CommandFailed, fail, perform
from strandline.cli.group_reset import topic_choice
from strandline.cli.options import Bootstrap, Output
from strandline.cli.output import Column, Format, show
from strandline.cli.over_tls import over_tls

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
    from strandline.cli.group_over_rpc import open_groups
    from strandline.core.errors import Refused

    rows = []
    async with open_groups(bootstrap) as groups:
        for group_id in ids:
            try:
                await groups.delete(group_id)
                rows.append({"group": group_id, "deleted": True, "outcome": "deleted"})
            except Refused as error:
                rows.append({"group": group_id, "deleted": False, "outcome": str(error)})
    return rows


async def _delete_offsets(
    bootstrap: str, group_id: str, chosen: list[tuple[str, list[int] | None]]
) -> list[dict[str, Any]]:
    from strandline.cli.group_over_rpc import open_groups

    async with open_groups(bootstrap) as groups:
        committed = (await groups.see(group_id)).committed
        named = {
            (topic, index)
            for topic, index in committed
            if any(topic == name and (indexes is None or index in indexes) for name, indexes in chosen)
        }
        deleted = await groups.delete_offsets(group_id, named) if named else []
    return [
        {
            "group": group_id,
            "topic": topic,
            "partition": index,
            "deleted": refusal is None,
            "outcome": "deleted" if refusal is None else str(refusal),
        }
        for (topic, index), refusal in deleted
    ]
