"""What all commands that move replicas share: read the cluster, plan, show the plan, and submit it with --yes.

Invariant: nothing is changed without --yes, and nothing at all if the plan or the controller refuses any of it; every
move names the replicas that it was planned from, so that the controller refuses it if they have changed since.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from strandline.cli.ask.throttle import (
    EXIT_REFUSED_PLAN,
    Limit,
    MovedCopy,
    inflow,
    never_ending,
    refuse_never_ending,
    time_at,
)
from strandline.cli.connect import ask
from strandline.cli.failures import CommandFailed
from strandline.cli.output import Column, Format, console, print_document, table
from strandline.core.errors import Refused
from strandline.core.planning.values import Move, Plan, PlannedNode, PlannedPartition, names
from strandline.units import bytes_text, count_of

if TYPE_CHECKING:
    from strandline.client import Admin, DescribedPartition

_SHOWN = 20
"""How many moves the table shows."""
PER_REQUEST = 250
"""How many moves one request has: a step of the controller must not delay the heartbeats of nodes."""

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Apply the plan; without it the plan is only shown.")]
Save = Annotated[
    Path | None, typer.Option("--save", metavar="FILE", help="Also write the plan, as `reassign --plan` reads it.")
]

_MOVES = [
    Column("name", "partition"),
    Column("before", "replicas"),
    Column("after", "afterwards"),
    Column("size_bytes", "size", number=True),
    Column("why", "why"),
]
_NODES = [Column("node", "node", number=True), Column("rack", "rack")] + [
    Column(key, heading, number=True)
    for what, title in (("replicas", "replicas"), ("first", "first replicas"), ("bytes", "size"))
    for key, heading in ((f"{what}_before", title), (f"{what}_after", "afterwards"))
]
_NODES += [Column("receives_bytes", "receives", number=True), Column("sends_bytes", "sends", number=True)]


class Seen(NamedTuple):
    """The cluster as it will be when all current moves have ended."""

    nodes: list[PlannedNode]
    partitions: list[PlannedPartition]
    leaders: dict[tuple[str, int], int | None]
    """The current leaders, which send the copies."""


async def look(admin: Admin) -> Seen:
    """The cluster, with the sizes that its nodes report."""
    image = await admin.metadata()
    sizes: dict[tuple[str, int], int] = {}
    for one in await admin.describe_replicas():
        sizes[one.topic, one.partition] = max(one.size_bytes, sizes.get((one.topic, one.partition), 0))
    nodes = [
        PlannedNode(
            node_id=node.node_id,
            rack=node.rack,
            draining=node.draining,
            away=node.fenced or node.shutting_down,
            full=node.disk_nearly_full,
        )
        for node in image.nodes
        if not node.is_observer
    ]
    described = {(each.topic, each.partition): each for topic in image.topics for each in topic.partitions}
    partitions = [
        PlannedPartition(
            topic=name[0], partition=name[1], replicas=target_of(each), in_sync=each.isr, size_bytes=sizes.get(name)
        )
        for name, each in described.items()
    ]
    return Seen(nodes, partitions, {name: each.leader for name, each in described.items()})


def target_of(partition: DescribedPartition) -> tuple[int, ...]:
    """The replicas of a partition once its running or waiting reassignment has ended."""
    staying = tuple(node_id for node_id in partition.replicas if node_id not in partition.removing)
    return partition.queued_target or staying


def carry_out(
    bootstrap: str,
    make: Callable[[Seen], Plan],
    *,
    yes: bool,
    save: Path | None = None,
    form: Format,
    limit: Limit,
    first: Callable[[Admin], Awaitable[object]] | None = None,
) -> None:
    """Make a plan and show it; with ``yes``, run ``first`` and submit the plan. Exit code 2 if the plan, or the
    controller, refuses some of it."""

    async def submit(admin: Admin) -> tuple[Seen, Plan]:
        seen = await look(admin)
        plan = make(seen)
        if plan.refusals:
            raise CommandFailed("\n  ".join(["nothing was changed: refused", *plan.refusals]), EXIT_REFUSED_PLAN)
        await _refuse_if_never_ending(admin, seen, plan, limit)
        await _submit(admin, plan.moves, limit.rate, validate_only=True)
        if save is not None:
            save_plan(save, plan.moves)
        if yes:
            if first is not None:
                await first(admin)
            await _submit(admin, plan.moves, limit.rate, validate_only=False)
        return seen, plan

    seen, plan = ask(bootstrap, submit)
    document = plan_document(seen, plan, limit.rate, submitted=yes and bool(plan.moves))
    if form is Format.TABLE:
        _print(document)
    else:
        print_document(document, form)
    if plan.moves:
        done = "submitted; `strandline reassign status --watch` shows the progress"
        typer.echo(f"strandline: {done if yes else 'nothing was changed: dry run; --yes applies it'}", err=True)


async def _refuse_if_never_ending(admin: Admin, seen: Seen, plan: Plan, limit: Limit) -> None:
    copying = [move for move in plan.moves if move.adding]
    if limit.rate is None or limit.force or not copying:
        return
    copies = [MovedCopy(move.name, seen.leaders[move.name], move.adding) for move in copying]
    written = await inflow(admin, [move.topic for move in copying])
    at_a_time = await admin.moves_per_node()
    refuse_never_ending(never_ending(copies, written, limit.rate, at_a_time).values())


async def _submit(admin: Admin, moves: Sequence[Move], rate: int | None, *, validate_only: bool) -> None:
    """Submit in parts; each partition is compared with what it was planned from, so no part depends on another."""
    taken, said = 0, list[str]()
    for start in range(0, len(moves), PER_REQUEST):
        part = moves[start : start + PER_REQUEST]
        try:
            rows = await admin.alter_partition_reassignments(
                {move.name: move.after for move in part},
                planned_from={move.name: move.before for move in part},
                throttle_bytes_per_s=rate,
                validate_only=validate_only,
            )
        except Refused as refused:
            raise CommandFailed(f"{_taken(taken)}: {refused.refusal}", EXIT_REFUSED_PLAN) from refused
        refusals = [f"{row.topic}-{row.partition}: {row.refusal}" for row in rows if row.refusal is not None]
        taken += 0 if validate_only else len(rows) - len(refusals)
        said += refusals
    if said:
        raise CommandFailed(f"{_taken(taken)}: {names(said)}; make a new plan", EXIT_REFUSED_PLAN)


def _taken(count: int) -> str:
    return f"{count_of(count, 'move')} taken, the others not" if count else "nothing was changed"


def plan_document(seen: Seen, plan: Plan, rate: int | None, *, submitted: bool) -> dict[str, Any]:
    """The plan for programs: moves, nodes before and after, the rate, and what stays unmet."""
    moves, nodes = [asdict(move) for move in plan.moves], _node_rows(seen, plan.moves)
    most_bytes = max((max(row["receives_bytes"], row["sends_bytes"]) for row in nodes), default=0)
    at_rate = {} if rate is None else {"throttle_bytes_per_s": rate, "least_seconds": most_bytes / rate}
    return {"submitted": submitted, "moves": moves, "nodes": nodes, **at_rate, "unmet": list(plan.remaining)}


def _node_rows(seen: Seen, moves: Iterable[Move]) -> list[dict[str, Any]]:
    """Each node's replicas before and after, and the bytes that it receives and, as a leader, sends."""
    counts: dict[str, Counter[int]] = {column.key: Counter() for column in _NODES[2:]}
    after = {(move.topic, move.partition): move.after for move in moves}
    for each in seen.partitions:
        for when, held in (
            ("before", each.replicas),
            ("after", after.get((each.topic, each.partition), each.replicas)),
        ):
            counts[f"replicas_{when}"].update(held)
            counts[f"first_{when}"][held[0]] += 1
            counts[f"bytes_{when}"].update(dict.fromkeys(held, each.size_bytes or 0))
    for move in moves:
        size, leader = move.size_bytes or 0, seen.leaders[move.topic, move.partition]
        counts["receives_bytes"].update(dict.fromkeys(move.adding, size))
        counts["sends_bytes"][move.before[0] if leader is None else leader] += size * len(move.adding)
    return [
        {"node": node.node_id, "rack": node.rack, **{key: count[node.node_id] for key, count in counts.items()}}
        for node in seen.nodes
    ]


def _print(document: dict[str, Any]) -> None:
    screen, moves = console(), document["moves"]
    rows = [
        move | {"name": f"{move['topic']}-{move['partition']}", "why": "; ".join(move["reasons"])}
        for move in moves[:_SHOWN]
    ]
    for lines, columns in ((rows, _MOVES), (document["nodes"], _NODES)):
        shown = [{key: bytes_text(row[key]) if "bytes" in key else row[key] for key in row} for row in lines]
        screen.print(table(shown, columns) if shown else "nothing to move")
        screen.print()
    if len(moves) > _SHOWN:
        screen.print(f"and {count_of(len(moves) - _SHOWN, 'more move')}; -o json and --save show every one")
    if (rate := document.get("throttle_bytes_per_s")) is not None:
        screen.print(time_at(rate, document["least_seconds"]))
    for each in document["unmet"]:
        screen.print(f"unmet: {each}", markup=False)


# ---- plan_files
# Plans as files, in the form of kafka-reassign-partitions: written by --save, read by `strandline reassign --plan`.
#
# Invariant: a file that --save wrote is read back as the same moves, and refused once what they were planned from has
# changed. Kafka's tool reads it, too: it ignores `planned_from`.


def save_plan(path: Path, moves: Iterable[Move]) -> None:
    """Write the moves as JSON, version 1."""
    partitions = [
        {
            "topic": move.topic,
            "partition": move.partition,
            "replicas": list(move.after),
            "log_dirs": ["any"] * len(move.after),
            "planned_from": list(move.before),
        }
        for move in moves
    ]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}, indent=1) + "\n")


def read_plan(path: Path, seen: Seen) -> Plan:
    """The moves in a file, for this cluster; refused with what has changed since the file was made.

    Raises:
        typer.BadParameter: it is no such file; says where.
    """
    now = {(each.topic, each.partition): each for each in seen.partitions}
    moves, refusals = [], []
    for entry in _entries(path.read_bytes()):
        each = now.get((entry["topic"], entry["partition"]))
        name, after = f"{entry['topic']}-{entry['partition']}", tuple(entry["replicas"])
        if each is None:
            refusals.append(f"{name}: there is no such partition; make a new plan")
        elif (before := tuple(entry.get("planned_from", each.replicas))) != each.replicas:
            was, is_now = (",".join(map(str, nodes)) for nodes in (before, each.replicas))
            refusals.append(f"{name}: planned when its replicas were {was}, and now they are {is_now}; make a new plan")
        elif after != before:
            moves.append(Move(topic=each.topic, partition=each.partition, before=before, after=after,
                              size_bytes=each.size_bytes, reasons=(str(path),)))  # fmt: skip
    return Plan(moves=() if refusals else tuple(moves), refusals=tuple(refusals))


def _entries(text: bytes) -> list[dict[str, Any]]:
    """The partitions of the file, each once and of the right shape."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"--plan: the file is not JSON: {error}") from error
    entries = document.get("partitions") if isinstance(document, dict) else None
    if not isinstance(entries, list) or document.get("version") != 1:
        raise typer.BadParameter('--plan: the file must be {"version": 1, "partitions": [...]}')
    named = set()
    for number, entry in enumerate(entries):
        if not _is_entry(entry):
            rule = "topic (a string), partition (a number) and replicas (node ids, each once); log_dirs can only be any"
            raise typer.BadParameter(f"--plan: partitions[{number}] must have {rule}")
        if (name := (entry["topic"], entry["partition"])) in named:
            raise typer.BadParameter(f"--plan: partitions[{number}]: {name[0]}-{name[1]} is named twice")
        named.add(name)
    return entries


def _is_entry(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("topic"), str)
        and type(entry.get("partition")) is int
        and _are_nodes(entry.get("replicas"))
        and _are_nodes(entry.get("planned_from", [0]))
        and entry.get("log_dirs") in (None, [], ["any"] * len(entry["replicas"]))
    )


def _are_nodes(given: Any) -> bool:
    is_list = isinstance(given, list) and given != [] and all(type(each) is int for each in given)
    return is_list and len(set(given)) == len(given)


def read_assignment(text: str | None) -> dict[int, list[int]]:
    """`1:2,2:3` as node ids by partition; None as none.

    Raises:
        typer.BadParameter: it is not of that form.
    """
    placed = [entry.split(":") for entry in text.split(",")] if text is not None else []
    if not all(re.fullmatch(" *[0-9]{1,9} *", node_id) for entry in placed for node_id in entry):
        raise typer.BadParameter(f"--assignment: {text!r} is not an assignment; write node ids by partition: 1:2,2:3")
    return {index: [int(node_id) for node_id in entry] for index, entry in enumerate(placed)}
