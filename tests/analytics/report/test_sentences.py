"""How events and figures read in plain words: groups, transactions, and clocks that go back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from reported_material import BEGIN_US, event, material

from strandline_analytics.commands.timeline import remark_on_clocks
from strandline_analytics.report.groups import GroupLine, group_lines
from strandline_analytics.report.material import Declared, Material, Result
from strandline_analytics.report.page import page, render
from strandline_analytics.timeline.sentences import sentence

S = 1_000_000


def _material(**rows: list[dict[str, Any]]) -> Material:
    """Results of these statistics, each row of topic t in cluster c; a statistic that is left out knows no group."""
    known = material()
    where = {"cluster_id": "c", "topic": "t", "partition": 0, "coverage": 1.0, "window_start": known.start_us}
    no_group = [{"group_id": None}]
    results = dict(known.results)
    for name in ("s21", "s22", "s23", "s24", "s25"):
        results[name] = Result(
            id=name,
            title=f"Title of {name}",
            headline="max_us",
            definition="First.",
            declared=[Declared(name="group_id", unit="", meaning="the group", is_extra=True)],
            rows=[where | row for row in rows.get(name, no_group)],
        )
    return replace(known, results=results)


FULL = _material(
    s21=[
        {"group_id": "orders", "max_records": 80},
        {"group_id": "orders", "max_records": 1_200, "partition": 1},
        {"group_id": "audit", "max_records": 160},
    ],
    s22=[
        {"group_id": "orders", "max_us": 20 * S, "at_least_us": None},
        {"group_id": "audit", "max_us": None, "at_least_us": 57 * S},
    ],
    s23=[
        {"group_id": "orders", "rebalances": 2, "unfinished": 1, "max_us": 12 * S, "max_unfinished_us": 5 * S,
         "slowest_member": "m-b"},
    ],
    s24=[
        {"group_id": "orders", "member_id": None, "episodes": 0, "longest_us": None},
        {"group_id": "orders", "member_id": "m-a", "episodes": 1, "longest_us": 110 * S, "partition": 1},
    ],
    s25=[
        {"group_id": "orders", "refused": 3, "refused_by_error": {"STALE_MEMBER_EPOCH": 3}, "unowned": 0,
         "unowned_longest_us": None},
        {"group_id": "orders", "refused": 4, "refused_by_error": {"STALE_MEMBER_EPOCH": 1, "FENCED": 3}, "unowned": 2,
         "unowned_longest_us": 20 * S, "partition": 1},
    ],
)  # fmt: skip


def test_a_group_has_the_worst_of_its_partitions() -> None:
    """Largest lags, sums of refusals over all partitions, and where a member was stuck or none was."""
    line = group_lines(FULL)[1]

    assert line == GroupLine(
        group_id="orders",
        records="1,200",
        time="20 s",
        rebalances="2 and 1 unfinished",
        longest="12 s",
        slowest="m-b",
        stuck="m-a: t-1, 110 s",
        unowned="t-1, 20 s",
        refused="FENCED: 3, STALE_MEMBER_EPOCH: 4",
    )


def test_what_is_not_known_is_a_dash_and_a_bound_is_called_one() -> None:
    """The group that was behind for longest is first, though only a lower bound of it is known."""
    line = group_lines(FULL)[0]

    assert (line.group_id, line.records, line.time) == ("audit", "160", "at least 57 s")
    assert {line.rebalances, line.longest, line.slowest, line.stuck, line.unowned, line.refused} == {"–"}


def test_known_and_nothing_happened_is_none() -> None:
    """A group in which no member was stuck, everything was owned and every commit was taken."""
    calm = _material(
        s24=[{"group_id": "g", "member_id": None, "episodes": 0, "longest_us": None}],
        s25=[{"group_id": "g", "refused": 0, "refused_by_error": None, "unowned": 0, "unowned_longest_us": None}],
    )
    (line,) = group_lines(calm)

    assert (line.stuck, line.unowned, line.refused) == ("none", "none", "none")


def test_groups_of_two_clusters_are_told_apart() -> None:
    """One name in two clusters is two groups, and the cluster stands before it."""
    both = _material(s21=[{"group_id": "g", "max_records": 1}, {"group_id": "g", "max_records": 2, "cluster_id": "d"}])

    assert [line.group_id for line in group_lines(both)] == ["c: g", "d: g"]


def test_a_page_without_groups_has_no_such_part() -> None:
    """The part is on the page where there are groups, and nowhere else."""
    assert 'id="groups"' in render(FULL)
    assert 'id="groups"' not in render(_material())
    assert page(_material())["groups"] == []


# How events of consumer groups read in plain words.


def _group(cause: str = "join", **said: Any) -> str:
    return sentence(event("GROUP_CHANGE", 0, plane="data", node=2, group_id="orders", cause=cause, **said))


def _member(**said: Any) -> str:
    who = {"group_id": "orders", "member_id": "m-1"}
    return sentence(event("MEMBER_CHANGE", 0, plane="data", node=2, **who, **said))


def test_a_groups_change_has_both_states_and_its_epoch() -> None:
    """A target that lags behind the group's epoch is named; else one epoch is enough."""
    moving = {"old_state": "Stable", "new_state": "Assigning", "group_epoch": 8, "target_epoch": 7, "n_members": 3}
    settled = {"old_state": "Stable", "new_state": "Stable", "group_epoch": 8, "target_epoch": 8, "n_members": 1}

    assert _group(**moving) == "group orders Stable -> Assigning, epoch 8, target of epoch 7, 3 members"
    assert _group(**settled) == "group orders is Stable, epoch 8, 1 member"
    assert _group("repeated", **settled) == "group orders is still Stable, epoch 8, 1 member"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"phase": "joined", "assigned": []}, "joins"),
        ({"phase": "joined", "assigned": ["T:0"]}, "joins with 1 partition"),
        ({"phase": "assigned", "assigned": ["T:0", "T:1"]}, "is assigned 2 partitions"),
        ({"phase": "revoking", "assigned": ["T:0"], "revoking": ["T:1"]}, "is to give up 1 partition, keeps 1"),
        ({"phase": "away"}, "is away for a while"),
        ({"phase": "fenced"}, "is fenced: it did not give up its partitions in time"),
        ({"phase": "gone"}, "is gone"),
        ({"phase": "assigned", "cause": "repeated", "assigned": ["T:0"]}, "still has 1 partition"),
        (
            {"phase": "revoking", "cause": "repeated", "revoking": ["T:1"]},
            "still has 0 partitions, is to give up 1 partition",
        ),
        ({"phase": "away", "cause": "repeated"}, "is away for a while"),
        ({"phase": "tide_turned"}, "tide_turned"),
    ],
)
def test_a_members_change_says_what_became_of_it(said: dict[str, Any], words: str) -> None:
    """Each phase has its words, and one of a newer version is shown by its name."""
    assert _member(**said) == f"member m-1 of group orders {words}"


def test_a_static_member_is_named_by_its_instance_too() -> None:
    """The instance id is the name that its operator gave it."""
    assert _member(phase="gone", instance_id="pod-3") == "member m-1 of group orders (pod-3) is gone"


def test_commits_are_shown_with_what_was_refused() -> None:
    """The committed offset, or that there is none, and refusals by error."""
    said = {"group_id": "orders", "committed": 12_000, "n_commits": 2, "n_error": {}}
    refused = {"group_id": "orders", "n_commits": 0, "n_error": {"STALE_MEMBER_EPOCH": 2, "FENCED_MEMBER_EPOCH": 1}}

    assert sentence(event("GROUP_OFFSETS", 0, plane="data", **said)) == "group orders has committed 12,000"
    assert sentence(event("GROUP_OFFSETS", 0, plane="data", **refused)) == (
        "group orders has nothing committed, commits refused: 1 with FENCED_MEMBER_EPOCH, 2 with STALE_MEMBER_EPOCH"
    )


def test_a_load_says_how_long_nobody_was_answered() -> None:
    """Its length, and what was read in it."""
    loaded = event("COORDINATOR_LOAD", 0, plane="data", node=2, bytes=20_480, n_keys=1_000, load_ms=1_250)

    assert sentence(loaded) == "coordinator answers after 1.250 s: 20,480 bytes read, 1,000 keys"


# Events of transactions in plain words.


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"cause": "open"}, "producer 7 of epoch 3 holds the LSO at 1,000 for 2.0 s, HW 1,200"),
        (
            {"cause": "inherited", "producer_epoch": None},
            "producer 7 holds the LSO at 1,000 for 2.0 s, HW 1,200, as this leader found it",
        ),
        (
            {"cause": "inherited", "producer_id": None, "producer_epoch": None},
            "a transaction of an unknown producer holds the LSO at 1,000 for 2.0 s, HW 1,200, as this leader found it",
        ),
        (
            {"cause": "hanging"},
            "producer 7 of epoch 3 holds the LSO at 1,000 for 2.0 s, HW 1,200: longer than any producer may ask for, "
            "so that its coordinator may not know it",
        ),
    ],
)
def test_who_holds_the_lso_and_since_when(said: dict[str, Any], words: str) -> None:
    """At its first offset; the HW says how much waits."""
    known = {
        "producer_id": 7,
        "producer_epoch": 3,
        "first_offset": 1_000,
        "hw": 1_200,
        "held_since_us": BEGIN_US + 1_000_000,
    }

    assert sentence(event("TRANSACTION_OPEN", 3_000, plane="data", **known | said)) == words


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            {"producer_id": 7, "producer_epoch": 3, "first_offset": 9, "outcome": "abort", "n_coalesced": 1},
            "producer 7 of epoch 3 aborts, marker at 1,500: the LSO was held back for 4.2 s",
        ),
        (
            {"outcome": "commit", "n_coalesced": 1_200},
            "1,200 short transactions committed, the LSO was held back for 4.2 s in all",
        ),
        (
            {"outcome": "abort", "n_coalesced": 1},
            "1 short transaction aborted, the LSO was held back for 4.2 s in all",
        ),
    ],
)
def test_what_became_of_it(said: dict[str, Any], words: str) -> None:
    """One that was reported before is named; of others there are only sums."""
    decided = event("TRANSACTION_DECIDED", 9_000, plane="data", marker_offset=1_500, held_ms=4_200, **said)

    assert sentence(decided) == words


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"cause": "init"}, "transactional id pay has an identity: producer 7 of epoch 3"),
        (
            {"cause": "timeout", "n_partitions": 2},
            "transactional id pay took too long and is aborted: producer 7 of epoch 3, 2 partitions",
        ),
        ({"cause": "tide"}, "transactional id pay tide: producer 7 of epoch 3"),
        (
            {"cause": "marker_refused"},
            "this partition calls the transaction of pay over, and its coordinator waits for it",
        ),
        ({"cause": "committed", "transactional_id": None, "n_coalesced": 3}, "3 short transactions committed"),
    ],
)
def test_what_became_of_a_transactional_id(said: dict[str, Any], words: str) -> None:
    """Each cause has its words, and one of a newer version is shown by its name."""
    known = {"transactional_id": "pay", "producer_id": 7, "producer_epoch": 3}

    assert sentence(event("TRANSACTION_CHANGE", 0, plane="data", **known | said)) == words


_CALL = {"principal": "client/ops", "method": "ControllerService/AlterTopicConfigs", "resource_type": "topic"}


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            {"outcome": "ALLOWED", "before": {"min.insync.replicas": "2"}, "after": {"min.insync.replicas": "1"}},
            "client/ops called AlterTopicConfigs topic orders: min.insync.replicas 2 -> 1",
        ),
        (
            {"outcome": "ALLOWED", "before": {}, "after": dict.fromkeys("abcde", "1")},
            "client/ops called AlterTopicConfigs topic orders: a none -> 1, b none -> 1, c none -> 1, 2 more",
        ),
        (
            {"outcome": "REFUSED", "n_coalesced": 40},
            "client/ops refused AlterTopicConfigs topic orders, 40 times: no rule allows it",
        ),
        (
            {"outcome": "REFUSED", "rule": "role", **dict.fromkeys((*_CALL, "resource_name"))},
            "callers refused calls: role",
        ),
    ],
)
def test_what_a_caller_changed_or_was_refused(said: dict[str, Any], words: str) -> None:
    """Who, what, and from which value to which; of many values the first three."""
    assert sentence(event("AUDIT", 0, plane="node", **_CALL | {"resource_name": "orders"} | said)) == words


# A timeline says why its times go back.


def test_times_that_go_back_are_explained() -> None:
    """Node 2 begins its epoch by its own clock 5 ms before the decision that made it leader."""
    decided = event("LEADER_CHANGE", 2_000, partition_epoch=1, leader_epoch=1)
    began = event("EPOCH_START", 1_995, plane="data", node=2, partition_epoch=1, leader_epoch=1)

    assert remark_on_clocks([decided, began]).startswith("strandline: 1 row shows an earlier time than the row above")


def test_times_in_order_need_no_remark() -> None:
    """Nothing is said where no time goes back, nor of an empty list."""
    rows = [event("EPOCH_START", at_ms, plane="data", node=2) for at_ms in (1, 2, 2)]

    assert remark_on_clocks(rows) == remark_on_clocks([]) == ""
