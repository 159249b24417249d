"""`strandline group`: the rows of `describe`, and what `reset-offsets` would write."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from hypothesis import given, strategies as st
from tests.client.fake_cluster import TOPIC, fake_cluster
from typer.testing import CliRunner

from strandline.cli.app import app
from strandline.cli.ask import group_reset
from strandline.cli.ask.group import STATES, member_rows, offset_rows, state_row
from strandline.cli.failures import CommandFailed
from strandline.cli.options import states_of
from strandline.client import Admin, DescribedGroup, DescribedMember, OffsetAndMetadata, TopicPartition
from strandline.client.consume.positions import records_behind
from strandline.core.errors import ErrorCode, Refused
from strandline.core.types import Offset
from strandline.records.codec import NewRecord, encode_batch

MEMBER = DescribedMember(
    member_id="m1",
    instance_id=None,
    rack=None,
    member_epoch=4,
    client_id="app",
    client_host="10.0.0.7",
    topics=("tides",),
    pattern=None,
    assignment=(TopicPartition("tides", 0), TopicPartition("tides", 2)),
    target_assignment=(TopicPartition("tides", 0),),
    revoking=(),
    state="Stable",
    last_heartbeat_age_ms=None,
    last_commit_age_ms=None,
    session_timeout_ms=45_000,
    rebalance_timeout_ms=300_000,
)
GROUP = DescribedGroup(
    group_id="g",
    state="Reconciling",
    group_epoch=5,
    assignment_epoch=4,
    assignor="uniform",
    coordinator=2,
    members=(MEMBER,),
)
SEEN = group_reset.SeenGroup(
    described=GROUP,
    committed={("tides", 0): 7, ("tides", 1): 9, ("gone", 0): 3},
    ends={("tides", 0): 10, ("tides", 1): 8, ("tides", 2): 4},
    ages_s={("tides", 0): 61.5},
)


def test_a_partition_is_shown_if_it_is_read_or_has_an_offset() -> None:
    """Lag is end minus offset, never below zero; what is not committed, or whose topic is gone, has no lag."""
    rows = [
        (row["topic"], row["partition"], row["current_offset"], row["log_end_offset"], row["lag"], row["consumer_id"])
        for row in offset_rows(SEEN)
    ]

    assert rows == [
        ("gone", 0, 3, None, None, None),
        ("tides", 0, 7, 10, 3, "m1"),
        ("tides", 1, 9, 8, 0, None),
        ("tides", 2, None, 4, None, "m1"),
    ]


@pytest.mark.parametrize(
    ("position", "end", "log_start", "lag"),
    [
        (10, 100, None, 90),
        (10, 100, 0, 90),
        (10, 100, 40, 60),
        (10, 100, 100, 0),
        (None, 100, 40, None),
        (10, None, 40, None),
    ],
)
def test_deleted_records_do_not_count_as_lag(
    position: int | None, end: int | None, log_start: int | None, lag: int | None
) -> None:
    """A group whose committed offset lies below the log start is behind by what can be read, perhaps nothing."""
    assert records_behind(position, end, log_start) == lag
    seen = replace(
        SEEN,
        committed={} if position is None else {("tides", 0): position},
        ends={} if end is None else {("tides", 0): end},
        starts={} if log_start is None else {("tides", 0): log_start},
    )
    assert seen.lag(("tides", 0)) == lag


def test_the_lag_in_seconds_is_shown_where_something_is_behind() -> None:
    """What is at its end, was never committed, or has no leader that answers, has no age; unasked, nothing has."""
    ages = [(row["topic"], row["partition"], row["lag_seconds"]) for row in offset_rows(SEEN, with_ages=True)]

    assert ages == [("gone", 0, None), ("tides", 0, 61.5), ("tides", 1, None), ("tides", 2, None)]
    assert not any("lag_seconds" in row for row in offset_rows(SEEN))


async def test_a_group_is_seen_with_the_age_of_what_it_has_not_read() -> None:
    """One record of each partition that is behind is looked at; a topic that is gone has neither end nor age."""
    async with fake_cluster(partitions=2) as cluster, Admin(cluster.bootstrap) as admin:
        ages_s = [(500, 100), (300,)]
        for partition, ages in enumerate(ages_s):
            rows = [NewRecord(None, b"v", int((time.time() - age_s) * 1_000)) for age_s in ages]
            cluster.append(cluster.tp(partition), encode_batch(rows))
        cluster.groups.committed["g"] = {(TOPIC, 0): 1, (TOPIC, 1): 1, ("gone", 0): 3}
        unasked = await group_reset.see(admin, "g")
        seen = await group_reset.see(admin, "g", with_ages=True)

    assert (seen.ends, unasked.ages_s) == ({(TOPIC, 0): 2, (TOPIC, 1): 1}, {})
    assert set(seen.ages_s) == {(TOPIC, 0)}
    assert 100 <= seen.ages_s[TOPIC, 0] < 160


def test_a_member_is_shown_with_what_it_reads() -> None:
    """Assignment and target name partitions; absent fields stay empty."""
    (row,) = member_rows(SEEN)

    assert (row["partitions"], row["assignment"], row["target_assignment"]) == (2, ["tides-0", "tides-2"], ["tides-0"])
    assert (row["instance_id"], row["last_heartbeat_age_ms"], row["state"]) == (None, None, "Stable")


def test_a_group_is_shown_in_one_row() -> None:
    """Epochs, state, coordinator and number of members."""
    assert state_row(SEEN) == {
        "group": "g",
        "coordinator": 2,
        "assignor": "uniform",
        "state": "Reconciling",
        "group_epoch": 5,
        "assignment_epoch": 4,
        "members": 1,
    }


def test_states_are_taken_in_any_case() -> None:
    """A list of states is read without regard to case; a word that is none is rejected with those there are."""
    assert states_of("stable, EMPTY", STATES, "group") == ["Stable", "Empty"]
    assert states_of(None, STATES, "group") == []
    with pytest.raises(typer.BadParameter, match="not a state of a group; known are Empty, Assigning"):
        states_of("stabel", STATES, "group")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name a GROUP, or --all-groups"),
        (["g", "--all-groups"], "name a GROUP, or --all-groups"),
        (["g", "--members", "--state"], "give one of"),
        (["g", "--members", "--seconds"], "--seconds goes with --offsets"),
    ],
)
def test_a_question_that_contradicts_itself_is_refused(words: list[str], said: str) -> None:
    """Groups by name or all of them, and one kind of row."""
    ran = CliRunner().invoke(app, ["group", "describe", *words, "-b", "127.0.0.1:1"])

    assert (ran.exit_code, said in ran.stderr) == (2, True)


HERE = ("tides", 3)
KNOWN = group_reset.OffsetRange(current=7, earliest=5, latest=10, at_time=8)
FRESH = group_reset.OffsetRange(current=None, earliest=5, latest=10)


@pytest.mark.parametrize(
    ("target", "known", "offset", "note"),
    [
        (group_reset.Target("earliest"), KNOWN, 5, None),
        (group_reset.Target("latest"), KNOWN, 10, None),
        (group_reset.Target("current"), KNOWN, 7, None),
        (group_reset.Target("current"), FRESH, 10, "no offset was committed: latest"),
        (group_reset.Target("offset", 6), KNOWN, 6, None),
        (group_reset.Target("offset", 4), KNOWN, 5, "4 is below the log start: earliest"),
        (group_reset.Target("offset", 11), KNOWN, 10, "11 is above the high watermark: latest"),
        (group_reset.Target("shift", -1), KNOWN, 6, None),
        (group_reset.Target("shift", -9), KNOWN, 5, "-2 is below the log start: earliest"),
        (group_reset.Target("time", 1), KNOWN, 8, None),
        (group_reset.Target("time", 1), FRESH, 10, "no record since: latest"),
        (group_reset.Target("file", offsets={HERE: 9}), KNOWN, 9, None),
    ],
)
def test_each_target_gives_an_offset_within_the_log(
    target: group_reset.Target, known: group_reset.OffsetRange, offset: int, note: str | None
) -> None:
    """What is beyond the log, or not known, becomes its nearest end, and the note says so."""
    assert group_reset.new_offset(target, HERE, known) == (offset, note)


@given(st.integers(-(10**6), 10**6), st.integers(0, 100), st.integers(0, 100), st.integers(0, 200))
def test_no_offset_lies_outside_the_log(number: int, earliest: int, length: int, current: int) -> None:
    """Whatever is asked for, the new offset is between log start and high watermark."""
    known = group_reset.OffsetRange(current=current, earliest=earliest, latest=earliest + length)
    for target in (
        group_reset.Target("offset", abs(number)),
        group_reset.Target("shift", number),
        group_reset.Target("current"),
    ):
        assert known.earliest <= group_reset.new_offset(target, HERE, known)[0] <= known.latest


def test_what_was_never_committed_cannot_be_shifted() -> None:
    """The message names the partition and another way."""
    with pytest.raises(CommandFailed, match=r"tides-3 has no committed offset to shift; give --to-offset"):
        group_reset.new_offset(group_reset.Target("shift", 1), HERE, FRESH)


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
        await group_reset.committed_of(busy, "g")
    assert await group_reset.committed_of(idle, "g") == {HERE: 7}
    assert await group_reset.committed_of(idle, "new") == {}


def test_a_topic_is_chosen_whole_or_by_partition() -> None:
    """`orders` is every partition, `orders:2,0` two of them; anything else is rejected with an example."""
    assert group_reset.topic_choice("orders") == ("orders", None)
    assert group_reset.topic_choice("orders:2,0,2") == ("orders", [0, 2])
    for text in ("", ":1", "orders:", "orders:a", "orders:1,,2", "orders:-1"):
        with pytest.raises(typer.BadParameter, match="orders:0,2"):
            group_reset.topic_choice(text)


def test_a_plan_is_lines_of_topic_partition_and_offset(tmp_path: Path) -> None:
    """A file gives offsets by partition; a wrong line is named by its number, an empty or missing file by its path."""
    good, bad, empty = tmp_path / "good", tmp_path / "bad", tmp_path / "empty"
    good.write_text("orders,0,17\norders,1,0\n")
    bad.write_text("orders,0,17\norders,1,-5\n")
    empty.touch()

    assert group_reset.read_plan(good) == {("orders", 0): 17, ("orders", 1): 0}
    with pytest.raises(typer.BadParameter, match=r"bad, line 2: 'orders,1,-5'"):
        group_reset.read_plan(bad)
    for path in (empty, tmp_path / "nowhere"):
        with pytest.raises(typer.BadParameter, match=path.name):
            group_reset.read_plan(path)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--topic", "t"], "give one of --to-earliest"),
        (["--topic", "t", "--to-earliest", "--to-latest"], "give one of --to-earliest"),
        (["--to-earliest"], "give --topic, --all-topics"),
        (["--topic", "t", "--all-topics", "--to-earliest"], "give --topic, --all-topics"),
        (["--topic", "t", "--to-earliest", "--dry-run", "--execute"], "not both"),
        (["--topic", "t", "--to-datetime", "yesterday"], "is not a time"),
    ],
)
def test_one_target_and_one_choice_of_partitions(words: list[str], said: str) -> None:
    """What is missing, or given twice, is exit code 2, before any request."""
    ran = CliRunner().invoke(app, ["group", "reset-offsets", "g", *words, "-b", "127.0.0.1:1"])

    assert (ran.exit_code, said in " ".join(ran.stderr.split())) == (2, True), ran.stderr
