"""`strandline group reset-offsets`: where a group without members is to read on.

Invariant: nothing is written without --execute; what is written is what was shown, in one commit, and lies between the
log start and the HW of each partition.
"""

from __future__ import annotations

import asyncio
import csv
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from strandline.cli.connect import ask, over_tls
from strandline.cli.durations import FORMS, Duration, duration_option, read_moment_us
from strandline.cli.failures import CommandFailed
from strandline.cli.options import Bootstrap, Output
from strandline.cli.output import NUMBER, TEXT, Format, kafka_columns, show

if TYPE_CHECKING:
    from strandline.client import Admin, DescribedGroup


_COLUMNS = kafka_columns(group=TEXT, topic=TEXT, partition=NUMBER, current_offset=NUMBER, new_offset=NUMBER, note=TEXT)

Kind = Literal["earliest", "latest", "current", "offset", "shift", "time", "file"]


@dataclass(frozen=True, slots=True)
class Target:
    """Where offsets go; ``number`` is an offset, a distance or ms since 1970, ``offsets`` what a file says."""

    kind: Kind
    number: int = 0
    offsets: Mapping[Named, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """What is known of one partition."""

    current: int | None
    earliest: int
    latest: int
    at_time: int | None = None


@over_tls
def reset_offsets(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The group; it must have no members.")],
    bootstrap: Bootstrap,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", metavar="TOPIC[:N,...]", help="Partitions to reset; repeatable."),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="Every partition with a committed offset of the group.")
    ] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the log start.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the high watermark.")] = False,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="To the committed offset; the latest if there is none.")
    ] = False,
    to_offset: Annotated[int | None, typer.Option("--to-offset", min=0, metavar="N", help="To this offset.")] = None,
    shift_by: Annotated[int | None, typer.Option("--shift-by", metavar="N", help="By N; back if negative.")] = None,
    to_datetime: Annotated[
        str | None, typer.Option("--to-datetime", metavar="TIME", help=f"To the first record since: {FORMS}.")
    ] = None,
    by_duration: Annotated[
        Duration | None, duration_option("--by-duration", help="To the first record within this time before now.")
    ] = None,
    from_file: Annotated[
        Path | None, typer.Option("--from-file", metavar="FILE", help="To offsets in lines TOPIC,PARTITION,OFFSET.")
    ] = None,
    export: Annotated[
        Path | None, typer.Option("--export", metavar="FILE", help="Also write the plan in the form of --from-file.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the plan; the default.")] = False,
    execute: Annotated[bool, typer.Option("--execute", help="Write the change.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Show where a group would read on, and with --execute commit it."""
    given: list[Target] = [
        *([Target("earliest")] if to_earliest else []),
        *([Target("latest")] if to_latest else []),
        *([Target("current")] if to_current else []),
        *([Target("offset", to_offset)] if to_offset is not None else []),
        *([Target("shift", shift_by)] if shift_by is not None else []),
        *([Target("time", read_moment_us(to_datetime, "--to-datetime") // 1_000)] if to_datetime is not None else []),
        *([Target("time", int(time.time() * 1_000 - by_duration.ms))] if by_duration is not None else []),
        *([Target("file", offsets=read_plan(from_file))] if from_file is not None else []),
    ]
    if len(given) != 1:
        raise typer.BadParameter("give one of --to-earliest, --to-latest, --to-current, --to-offset, --shift-by, "
                                 "--to-datetime, --by-duration and --from-file")  # fmt: skip
    if (from_file is not None) + bool(topic) + all_topics != 1:
        raise typer.BadParameter("give --topic, --all-topics, or a file that names the partitions, and one of them")
    if dry_run and execute:
        raise typer.BadParameter("give --dry-run or --execute, and not both")
    chosen = [topic_choice(text) for text in topic or []]
    rows = ask(bootstrap, lambda admin: _reset(admin, group, chosen, given[0], export, execute))
    show(rows, _COLUMNS, output, empty="no partition")
    if not execute:
        typer.echo("strandline: nothing was written: this was a dry run; --execute commits it", err=True)


def topic_choice(text: str) -> tuple[str, list[int] | None]:
    """`orders:0,2` as a topic and partitions; None means all.

    Raises:
        typer.BadParameter: it is neither.
    """
    name, colon, numbers = text.partition(":")
    if not name or (colon and not re.fullmatch(r"[0-9]{1,9}(,[0-9]{1,9})*", numbers)):
        raise typer.BadParameter(f"--topic: {text!r} is not TOPIC or TOPIC:N,...; write for example orders:0,2")
    return name, sorted({int(number) for number in numbers.split(",")}) if colon else None


def read_plan(path: Path) -> dict[Named, int]:
    """What `--export` wrote.

    Raises:
        typer.BadParameter: the file cannot be read, or a line is not TOPIC,PARTITION,OFFSET; names file and line.
    """
    plan: dict[Named, int] = {}
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            for number, line in enumerate(csv.reader(lines), 1):
                if len(line) != 3 or not all(re.fullmatch("[0-9]{1,18}", part) for part in line[1:]):
                    raise typer.BadParameter(f"--from-file: {path}, line {number}: {','.join(line)!r} is not "
                                             "TOPIC,PARTITION,OFFSET; write for example orders,0,17")  # fmt: skip
                plan[line[0], int(line[1])] = int(line[2])
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise typer.BadParameter(f"--from-file: {path}: {error}") from None
    if not plan:
        raise typer.BadParameter(f"--from-file: {path} has no line; write TOPIC,PARTITION,OFFSET")
    return plan


def new_offset(target: Target, named: Named, known: OffsetRange) -> tuple[int, str | None]:
    """The offset that one partition gets, and a word where it is not the one asked for.

    Raises:
        CommandFailed: --shift-by without an offset to shift.
    """
    note = None
    match target.kind:
        case "earliest":
            wanted = known.earliest
        case "latest":
            wanted = known.latest
        case "current":
            wanted = known.latest if known.current is None else known.current
            note = "no offset was committed: latest" if known.current is None else None
        case "time":
            wanted = known.latest if known.at_time is None else known.at_time
            note = "no record since: latest" if known.at_time is None else None
        case "shift":
            if known.current is None:
                raise CommandFailed(
                    f"{named[0]}-{named[1]} has no committed offset to shift; give --to-offset or another target"
                )
            wanted = known.current + target.number
        case "offset":
            wanted = target.number
        case _:
            wanted = (target.offsets or {})[named]
    if wanted < known.earliest:
        return known.earliest, f"{wanted:,} is below the log start: earliest"
    if wanted > known.latest:
        return known.latest, f"{wanted:,} is above the high watermark: latest"
    return wanted, note


async def _reset(
    admin: Admin,
    group_id: str,
    chosen: list[tuple[str, list[int] | None]],
    target: Target,
    export: Path | None,
    execute: bool,
) -> list[dict[str, Any]]:
    committed = await committed_of(admin, group_id)
    named = await _partitions(admin, chosen, target, committed)
    bounds = await _bounds(admin, named, committed, target)
    plan = {each: new_offset(target, each, bounds[each]) for each in sorted(named)}
    if export is not None:
        with export.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([*each, offset] for each, (offset, _) in plan.items())
    if execute and plan:
        await admin.alter_group_offsets(group_id, {each: offset for each, (offset, _) in plan.items()})
    return [
        {
            "group": group_id,
            "topic": topic,
            "partition": index,
            "current_offset": committed.get((topic, index)),
            "new_offset": offset,
            "note": note,
        }
        for (topic, index), (offset, note) in plan.items()
    ]


async def committed_of(admin: Admin, group_id: str) -> dict[Named, int]:
    """The group's offsets; none if there is no such group yet.

    Raises:
        CommandFailed: it has members, who would go on from where they are and commit that.
    """
    from strandline.client import ErrorCode, Refused

    try:
        (described,) = await admin.describe_groups([group_id])
    except Refused as error:
        if error.refusal.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return {}
        raise
    if described.members:
        names = ", ".join(f"{member.member_id} ({member.client_host})" for member in described.members)
        raise CommandFailed(f"NON_EMPTY_GROUP: group {group_id} has members: {names}; stop them first")
    offsets = await admin.list_group_offsets(group_id)
    return {tp: one.offset for tp, one in offsets.items() if one is not None}


async def _partitions(
    admin: Admin, chosen: list[tuple[str, list[int] | None]], target: Target, committed: Mapping[Named, int]
) -> set[Named]:
    if target.offsets is not None:
        return set(target.offsets)
    if not chosen:
        return set(committed)
    named: set[Named] = set()
    for topic, indexes in chosen:
        (described,) = await admin.describe_topics([topic])
        every = range(len(described.partitions))
        named |= {(topic, index) for index in (every if indexes is None else indexes)}
    return named


async def _bounds(
    admin: Admin, named: set[Named], committed: Mapping[Named, int], target: Target
) -> dict[Named, OffsetRange]:
    """What is known of each partition.

    Raises:
        CommandFailed: one does not exist.
    """
    from strandline.client import EARLIEST, LATEST

    latest = await offsets_at(admin, named, LATEST)
    earliest = await offsets_at(admin, named, EARLIEST)
    at_time = await offsets_at(admin, named, target.number) if target.kind == "time" else {}
    if missing := sorted(named - latest.keys()):
        topic, index = missing[0]
        raise CommandFailed(f"UNKNOWN_TOPIC_OR_PARTITION: there is no partition {topic}-{index}; nothing was written")
    return {
        each: OffsetRange(current=committed.get(each), earliest=earliest.get(each, 0), latest=latest[each],
                     at_time=at_time.get(each))
        for each in named
    }  # fmt: skip


# ---- seen_group
# One group as commands show it: what its coordinator says of it, what it has committed, and the span of its logs.
#
# Invariant: a partition that does not exist any more has no end; nothing is guessed for it.

Named = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenGroup:
    """One group: its coordinator's description, its committed offsets, and log starts and ends (HW) of the partitions
    named."""

    described: DescribedGroup
    committed: Mapping[Named, int]
    ends: Mapping[Named, int]
    starts: Mapping[Named, int] = field(default_factory=dict)
    ages_s: Mapping[Named, float] = field(default_factory=dict)
    """How old the first record that was not consumed is, where there is one and it was asked for."""

    def lag(self, named: Named) -> int | None:
        """Records that are left between the committed offset and the end; None without either."""
        from strandline.client.consume.positions import records_behind

        return records_behind(self.committed.get(named), self.ends.get(named), self.starts.get(named))


async def see(admin: Admin, group_id: str, *, with_ages: bool = False) -> SeenGroup:
    """Everything about one group.

    Raises:
        Refused: there is no such group, or its coordinator did not answer in time.
    """
    from strandline.client import EARLIEST, LATEST

    (described,) = await admin.describe_groups([group_id])
    # What the coordinator holds now: a person looks also while it cannot commit.
    offsets = await admin.list_group_offsets(group_id, require_stable=False)
    committed: dict[Named, int] = {tp: one.offset for tp, one in offsets.items() if one is not None}
    assigned = {tp for member in described.members for tp in member.assignment}
    ends = await offsets_at(admin, {*committed, *assigned}, LATEST)
    starts = await offsets_at(admin, committed, EARLIEST)
    ages_s = await _ages_s(admin, committed, ends) if with_ages else {}
    return SeenGroup(described=described, committed=committed, ends=ends, starts=starts, ages_s=ages_s)


async def offsets_at(admin: Admin, named: Iterable[Named], timestamp_ms: int) -> dict[Named, int]:
    """LATEST (the HW), EARLIEST, or the first offset at or after a time, of the partitions that exist and have one.

    Raises:
        Refused: a leader's last refusal at the deadline.
    """
    from strandline.client import TopicPartition

    counts = {topic.name: len(topic.partitions) for topic in (await admin.metadata()).topics}
    asked: dict[str, list[int]] = {}
    for topic, index in sorted(named):
        if index < counts.get(topic, 0):
            asked.setdefault(topic, []).append(index)
    answers = await asyncio.gather(
        *(admin.list_offsets(topic, indexes, timestamp_ms=timestamp_ms) for topic, indexes in asked.items())
    )
    return {
        TopicPartition(topic, index): one.offset
        for topic, found in zip(asked, answers, strict=True)
        for index, one in found.items()
        if one.offset is not None
    }


async def _ages_s(admin: Admin, committed: Mapping[Named, int], ends: Mapping[Named, int]) -> dict[Named, float]:
    behind = {named: offset for named, offset in committed.items() if named in ends and offset < ends[named]}
    times = await admin.record_times(behind)
    now_ms = time.time() * 1_000
    return {named: round(max(0.0, (now_ms - time_ms) / 1_000), 1) for named, time_ms in times.items()}
