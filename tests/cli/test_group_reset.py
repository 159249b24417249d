"""What `strandline group reset-offsets` would write."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from strandline.cli.app import app
from strandline.cli.ask.group_reset import Bounds, Target, committed_of, new_offset, read_plan, topic_choice
from strandline.cli.failures import CommandFailed
from strandline.client import DescribedGroup, OffsetAndMetadata, TopicPartition
from strandline.core.errors import ErrorCode, Refused
from strandline.core.types import Offset

HERE = ("tides", 3)
KNOWN = Bounds(current=7, earliest=5, latest=10, at_time=8)
FRESH = Bounds(current=None, earliest=5, latest=10)


@pytest.mark.parametrize(
    ("target", "known", "offset", "note"),
    [
        (Target("earliest"), KNOWN, 5, None),
        (Target("latest"), KNOWN, 10, None),
        (Target("current"), KNOWN, 7, None),
        (Target("current"), FRESH, 10, "no offset was committed: latest"),
        (Target("offset", 6), KNOWN, 6, None),
        (Target("offset", 4), KNOWN, 5, "4 is below the log start: earliest"),
        (Target("offset", 11), KNOWN, 10, "11 is above the high watermark: latest"),
        (Target("shift", -1), KNOWN, 6, None),
        (Target("shift", -9), KNOWN, 5, "-2 is below the log start: earliest"),
        (Target("time", 1), KNOWN, 8, None),
        (Target("time", 1), FRESH, 10, "no record since: latest"),
        (Target("file", offsets={HERE: 9}), KNOWN, 9, None),
    ],
)
def test_each_target_gives_an_offset_within_the_log(
    target: Target, known: Bounds, offset: int, note: str | None
) -> None:
    """What is beyond the log, or not known, becomes its nearest end, and the note says so."""
    assert new_offset(target, HERE, known) == (offset, note)


@given(st.integers(-(10**6), 10**6), st.integers(0, 100), st.integers(0, 100), st.integers(0, 200))
def test_no_offset_lies_outside_the_log(number: int, earliest: int, length: int, current: int) -> None:
    """Whatever is asked for, the new offset is between log start and high watermark."""
    known = Bounds(current=current, earliest=earliest, latest=earliest + length)
    for target in (Target("offset", abs(number)), Target("shift", number), Target("current")):
        assert known.earliest <= new_offset(target, HERE, known)[0] <= known.latest


def test_what_was_never_committed_cannot_be_shifted() -> None:
    """The message names the partition and another way."""
    with pytest.raises(CommandFailed, match=r"tides-3 has no committed offset to shift; give --to-offset"):
        new_offset(Target("shift", 1), HERE, FRESH)


class OneGroup:
    """A cluster that has one group, as described."""

    def __init__(self, *members: Any) -> None:
        self.described = DescribedGroup("g", "Stable", 1, 1, "uniform", 1, members)

    async def describe_groups(self, group_ids: list[str]) -> list[DescribedGroup]:
        """The group, if it is the one."""
        if group_ids != ["g"]:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_ids[0]!r}")
        return [self.described]

    async def list_group_offsets(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """One partition with an offset, and one without."""
        return {TopicPartition(*HERE): OffsetAndMetadata(Offset(7)), TopicPartition("tides", 4): None}


async def test_a_group_with_members_is_not_reset() -> None:
    """The message names the members; without any the offsets count, and a group that is not there has none."""
    busy: Any = OneGroup(SimpleNamespace(member_id="m1", client_host="10.0.0.7"))
    idle: Any = OneGroup()

    with pytest.raises(CommandFailed, match=r"group g has members: m1 \(10\.0\.0\.7\); stop them first"):
        await committed_of(busy, "g")
    assert await committed_of(idle, "g") == {HERE: 7}
    assert await committed_of(idle, "new") == {}


def test_a_topic_is_chosen_whole_or_by_partition() -> None:
    """`orders` is every partition, `orders:2,0` two of them; anything else is rejected with an example."""
    assert topic_choice("orders") == ("orders", None)
    assert topic_choice("orders:2,0,2") == ("orders", [0, 2])
    for text in ("", ":1", "orders:", "orders:a", "orders:1,,2", "orders:-1"):
        with pytest.raises(typer.BadParameter, match="orders:0,2"):
            topic_choice(text)


def test_a_plan_is_lines_of_topic_partition_and_offset(tmp_path: Path) -> None:
    """A file gives offsets by partition; a wrong line is named by its number, an empty or missing file by its path."""
    good, bad, empty = tmp_path / "good", tmp_path / "bad", tmp_path / "empty"
    good.write_text("orders,0,17\norders,1,0\n")
    bad.write_text("orders,0,17\norders,1,-5\n")
    empty.touch()

    assert read_plan(good) == {("orders", 0): 17, ("orders", 1): 0}
    with pytest.raises(typer.BadParameter, match=r"bad, line 2: 'orders,1,-5'"):
        read_plan(bad)
    for path in (empty, tmp_path / "nowhere"):
        with pytest.raises(typer.BadParameter, match=path.name):
            read_plan(path)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--topic", "t"], "give one of --to-earliest"),
        (["--topic", "t", "--to-earliest", "--to-latest"], "give one of --to-earliest"),
        (["--to-earliest"], "give --topic, --all-topics"),
        (["--topic", "t", "--all-topics", "--to-earliest"], "give --topic, --all-topics"),
        (["--topic", "t", "--to-earliest", "--dry-run", "--execute"], "not both"),
        (["--topic", "t", "--to-datetime", "yesterday"], "is no time"),
    ],
)
def test_one_target_and_one_choice_of_partitions(words: list[str], said: str) -> None:
    """What is missing, or given twice, is exit code 2, before any request."""
    ran = CliRunner().invoke(app, ["group", "reset-offsets", "g", *words, "-b", "127.0.0.1:1"])

    assert (ran.exit_code, said in " ".join(ran.stderr.split())) == (2, True), ran.stderr
