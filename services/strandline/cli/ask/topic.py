"""`strandline topic ...`: create, list, describe, alter and delete topics; other files add more of its commands.

Invariant: only the controller validates names and settings; the command only asks and shows the answer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.ask.partitions import elect, offsets
from strandline.cli.ask.planning import Seen, Yes, carry_out, read_assignment
from strandline.cli.ask.throttle import Force, Limit, Throttle
from strandline.cli.ask.topic_change import add_partitions, configs, delete_records, grow
from strandline.cli.connect import over_tls
from strandline.cli.failures import CommandFailed, fail, perform
from strandline.cli.options import Bootstrap, Output, Topic, key_values
from strandline.cli.output import Column, Format, console, show, show_one
from strandline.core.planning.plan import plan
from strandline.core.planning.values import Plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.client import DescribedCluster, DescribedPartition, DescribedTopic

app = typer.Typer(
    help="Create, list, describe, alter, delete topics; partitions, settings, offsets, elections, old records.",
    no_args_is_help=True,
)

Configs = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="NAME=VALUE", help="A topic setting, such as min.insync.replicas=2."),
]

_PARTITION_COLUMNS = [
    Column("topic", "topic"),
    Column("partition", "partition", number=True),
    Column("leader", "leader", number=True),
    Column("leader_epoch", "epoch", number=True),
    Column("replicas", "replicas"),
    Column("isr", "ISR"),
    Column("elr", "ELR"),
    Column("observers", "observers"),
    Column("min_isr", "min ISR", number=True),
]


@app.command()
@over_tls
def create(
    topic: Topic,
    bootstrap: Bootstrap,
    partitions: Annotated[int | None, typer.Option("--partitions", "-p", help="How many partitions.")] = None,
    replication_factor: Annotated[
        int | None, typer.Option("--replication-factor", "-r", help="Replicas of each partition.")
    ] = None,
    assignment: Annotated[
        str | None,
        typer.Option(metavar="ID:ID[,...]", help="Node ids of each partition, the preferred leader first: 1:2,2:3."),
    ] = None,
    config: Configs = None,
    output: Output = Format.TABLE,
) -> None:
    """Create a topic."""
    settings = key_values(config or [], "--config")
    placed = read_assignment(assignment)
    if placed and (partitions is not None or replication_factor is not None):
        raise typer.BadParameter("--assignment sets partitions and replicas; leave out the other options")
    perform(_create(bootstrap, topic, partitions, replication_factor, placed, settings, output))


async def _create(
    bootstrap: str,
    name: str,
    partitions: int | None,
    factor: int | None,
    placed: dict[int, list[int]],
    configs: dict[str, str],
    form: Format,
) -> None:
    from strandline.cli.connect import open_admin

    async with open_admin(bootstrap) as admin:
        created = await admin.create_topic(
            name, partitions=partitions, replication_factor=factor, configs=configs, assignments=placed
        )
    sentence = f"created {name}: {created.partitions} partitions, {created.replication_factor} replicas each"
    show_one(created._asdict(), form, sentence)


@app.command("list")
@over_tls
def list_topics(bootstrap: Bootstrap, output: Output = Format.TABLE) -> None:
    """List all topics."""
    perform(_list(bootstrap, output))


async def _list(bootstrap: str, form: Format) -> None:
    from strandline.cli.connect import open_admin

    async with open_admin(bootstrap) as admin:
        image = await admin.metadata()
    rows = [topic_row(topic) for topic in sorted(image.topics, key=lambda topic: topic.name)]
    columns = [
        Column("topic", "topic"),
        Column("partitions", "partitions", number=True),
        Column("replication_factor", "replicas", number=True),
        Column("configs_text", "settings"),
    ]
    show(rows, columns, form, empty="no topics")


@app.command()
@over_tls
def describe(
    bootstrap: Bootstrap,
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="One topic; default: all.")] = None,
    under_replicated: Annotated[
        bool, typer.Option("--under-replicated-partitions", help="Only partitions with a replica out of sync.")
    ] = False,
    under_min_isr: Annotated[
        bool, typer.Option("--under-min-isr-partitions", help="Only partitions that refuse acks=all.")
    ] = False,
    unavailable: Annotated[
        bool, typer.Option("--unavailable-partitions", help="Only partitions without a leader.")
    ] = False,
    replicas: Annotated[
        bool, typer.Option("--replicas", help="Print one row per replica: LEO, HW, lag and state.")
    ] = False,
    output: Output = Format.TABLE,
) -> None:
    """Show the partitions of one topic or of all: leader, epoch, replicas, ISR."""
    tests = _filters(under_replicated, under_min_isr, unavailable)
    perform((_describe_replicas if replicas else _describe)(bootstrap, topic, tests, output))


def _filters(
    under_replicated: bool, under_min_isr: bool, unavailable: bool
) -> list[Callable[[DescribedPartition], bool]]:
    from strandline.cli.ask import health

    asked = [
        (under_replicated, health.is_under_replicated),
        (under_min_isr, health.is_under_min_isr),
        (unavailable, health.is_unavailable),
    ]
    return [test for wanted, test in asked if wanted]


async def _describe(
    bootstrap: str, name: str | None, tests: list[Callable[[DescribedPartition], bool]], form: Format
) -> None:
    from strandline.cli.connect import open_admin

    async with open_admin(bootstrap) as admin:
        image = await admin.metadata()
    topics = _chosen(image, name)
    rows = [
        partition_row(topic.name, partition)
        for topic in sorted(topics, key=lambda topic: topic.name)
        for partition in topic.partitions
        if all(test(partition) for test in tests)
    ]
    if form is Format.TABLE and name is not None and not tests:
        _print_heading(topics[0])
    show(rows, _PARTITION_COLUMNS, form, empty="no such partitions")


async def _describe_replicas(
    bootstrap: str, name: str | None, tests: list[Callable[[DescribedPartition], bool]], form: Format
) -> None:
    from strandline.cli.ask.partitions import COLUMNS, replica_rows
    from strandline.cli.connect import open_admin

    names = [] if name is None else [name]
    async with open_admin(bootstrap) as admin:
        image = await admin.metadata()
        chosen = {topic.name for topic in _chosen(image, name)}
        led = await admin.describe_partitions(names)
        held = await admin.describe_replicas(names)
    rows = list(
        replica_rows(image, led, held, lambda topic, part: topic in chosen and all(test(part) for test in tests))
    )
    if form is not Format.TABLE:
        rows = [{key: value for key, value in row.items() if not key.endswith("_text")} for row in rows]
    show(rows, COLUMNS, form, empty="no such partitions")


def _chosen(image: DescribedCluster, name: str | None) -> list[DescribedTopic]:
    """The topic of this name, or all.

    Raises:
        CommandFailed: there is none of this name.
    """
    topics = [topic for topic in image.topics if name in (None, topic.name)]
    if name is not None and not topics:
        raise CommandFailed(f"UNKNOWN_TOPIC_OR_PARTITION: no topic is named {name!r}; see `strandline topic list`")
    return topics


def _print_heading(topic: DescribedTopic) -> None:
    row = topic_row(topic)
    screen = console()
    screen.print(f"[bold]{topic.name}[/]  {row['partitions']} partitions, {row['replication_factor']} replicas")
    screen.print(f"[dim]id {topic.topic_id}  {row['configs_text']}[/]\n")


@app.command()
@over_tls
def alter(
    topic: Topic,
    bootstrap: Bootstrap,
    partitions: Annotated[int | None, typer.Option("--partitions", "-p", help="A higher number of partitions.")] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option("--replication-factor", "-r", min=1, help="Replicas of each partition: makes a plan, see --yes."),
    ] = None,
    config: Configs = None,
    delete_config: Annotated[
        list[str] | None, typer.Option("--delete-config", metavar="NAME", help="Reset a setting to its default.")
    ] = None,
    throttle: Throttle = None,
    force: Force = False,
    yes: Yes = False,
    output: Output = Format.TABLE,
) -> None:
    """Add partitions to a topic, change its settings, or plan another replication factor."""
    settings = key_values(config or [], "--config")
    if replication_factor is not None:
        if partitions is not None or settings or delete_config:
            raise typer.BadParameter("--replication-factor makes its own plan; leave out the other changes")
        limit = Limit(throttle, force)
        perform(
            carry_out(
                bootstrap,
                lambda seen: _factor_plan(seen, topic, replication_factor),
                yes=yes,
                form=output,
                limit=limit,
            )
        )
        return
    if partitions is None and not settings and not delete_config:
        raise typer.BadParameter(
            "nothing to alter: give --partitions, --replication-factor, --config or --delete-config"
        )
    perform(_alter(bootstrap, topic, partitions, settings, delete_config or []))


async def _alter(bootstrap: str, name: str, partitions: int | None, settings: dict[str, str], unset: list[str]) -> None:
    from strandline.cli.connect import open_admin

    async with open_admin(bootstrap) as admin:
        if settings or unset:
            await admin.alter_topic_configs(name, settings, delete=unset)
            typer.echo(f"altered the settings of {name}")
        if partitions is not None:
            await grow(admin, name, partitions)


def _factor_plan(seen: Seen, name: str, factor: int) -> Plan:
    if name not in {each.topic for each in seen.partitions}:
        raise CommandFailed(f"UNKNOWN_TOPIC_OR_PARTITION: no topic is named {name!r}; see `strandline topic list`")
    wanted = [replace(each, replication_factor=factor if each.topic == name else None) for each in seen.partitions]
    return plan(seen.nodes, wanted, ())


@app.command()
@over_tls
def delete(
    topic: Topic,
    bootstrap: Bootstrap,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a topic and all its records."""
    if not yes:
        _confirm(topic)
    perform(_delete(bootstrap, topic))


def _confirm(topic: str) -> None:
    """Ask for confirmation.

    Raises:
        typer.Exit: it was not given.
    """
    try:
        agreed = typer.confirm(f"delete topic {topic} and all its records?")
    except typer.Abort:
        agreed = False
    if not agreed:
        raise fail(CommandFailed(f"topic {topic} is not deleted: it was not confirmed; answer y, or give --yes"))


async def _delete(bootstrap: str, name: str) -> None:
    from strandline.cli.connect import open_admin

    async with open_admin(bootstrap) as admin:
        await admin.delete_topic(name)
    typer.echo(f"deleted {name}")


app.command("add-partitions")(add_partitions)
app.command("configs")(configs)
app.command("offsets")(offsets)
app.command("elect")(elect)
app.command("delete-records")(delete_records)


def topic_row(topic: DescribedTopic) -> dict[str, Any]:
    """A topic as a row."""
    configs = dict(topic.configs)
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "partitions": len(topic.partitions),
        "replication_factor": max((len(partition.replicas) for partition in topic.partitions), default=0),
        "configs": configs,
        "configs_text": " ".join(f"{name}={value}" for name, value in sorted(configs.items())),
    }


def partition_row(topic: str, partition: DescribedPartition) -> dict[str, Any]:
    """A partition, as the controller committed it, as a row."""
    return {
        "topic": topic,
        "partition": partition.partition,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "elr": list(partition.elr),
        "observers": list(partition.observers),
        "min_isr": partition.min_isr,
    }
