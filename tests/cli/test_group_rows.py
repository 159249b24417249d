"""Rows of `strandline group describe`, from what a coordinator answers."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
import typer
from tests.client.fake_cluster import TOPIC, fake_cluster
from typer.testing import CliRunner

from strandline.cli.app import app
from strandline.cli.ask.group import member_rows, offset_rows, state_row, states_of
from strandline.cli.ask.group_reset import SeenGroup, see
from strandline.client import Admin, DescribedGroup, DescribedMember, TopicPartition
from strandline.client.consume.positions import records_behind
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
SEEN = SeenGroup(
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
        unasked = await see(admin, "g")
        seen = await see(admin, "g", with_ages=True)

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
    assert states_of("stable, EMPTY") == ["Stable", "Empty"]
    assert states_of(None) == []
    with pytest.raises(typer.BadParameter, match="known are Empty, Assigning"):
        states_of("stabel")


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
