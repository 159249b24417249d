"""The chain of events behind one decision, and what holds readers of committed records back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from reported_material import BEGIN_US, event, failover, outage, samples, stall

from strandline_analytics.explain.chain import candidates, explain
from strandline_analytics.explain.stall import HeldBack, HeldLso, PartitionAt, explain_held_back, explain_stall
from strandline_analytics.timeline.event import Event
from strandline_analytics.timeline.sentences import sentence


def test_a_failover_is_reported_from_the_last_heartbeat_to_the_cut() -> None:
    """Heartbeat, fence, both commits of the decision, epoch start, HW move, truncation: each with its time."""
    chain = explain([*failover(), *samples()], 1)

    assert [(link.name, (link.t_us - BEGIN_US) / 1000) for link in chain.links] == [
        ("last heartbeat", 500),
        ("commit", 2_000),
        ("commit", 2_000),
        ("fence", 2_000),
        ("activation", 2_020),
        ("HW move", 2_600),
        ("cut", 4_200),
    ]
    assert chain.missing == (
        "how far node 1 had come: no leader reported it",
        "how long the high watermark stood: a move before and one after are needed",
        "whether what node 1 cut had been acknowledged: no look at the old leader",
    )


def test_a_shrink_by_lag_names_who_had_stopped_and_when() -> None:
    """The leader's echo has last fetch and last caught-up, by its clock, shifted with its own row."""
    left = {"replica_id": 3, "leo": 7, "last_fetch_us": BEGIN_US + 1_000, "last_caught_up_us": BEGIN_US + 900}
    reported = [
        event("HW_ADVANCE", 10, plane="data", node=1, partition_epoch=4, old_hw=6, new_hw=7),
        event("ALTER_PARTITION", 29, plane="data", node=1, partition_epoch=4, phase="proposed",
              expected_partition_epoch=4, proposed_isr=[1, 2]),
        event("ISR_CHANGE", 30, partition_epoch=5, old_isr=[1, 2, 3], new_isr=[1, 2], cause="lag", initiator="leader"),
        event("ISR_CHANGE", 31, plane="data", node=1, partition_epoch=5, old_isr=[1, 2, 3], new_isr=[1, 2],
              cause="lag", removed=[left]),
        event("HW_ADVANCE", 32, plane="data", node=1, partition_epoch=5, old_hw=7, new_hw=9, blocking_replicas=[3]),
    ]  # fmt: skip
    chain = explain(reported, 5)

    names = ["last caught up", "last fetch", "proposal", "commit", "HW move"]
    assert [link.name for link in chain.links] == names
    assert chain.links[1].reported == "node 3 at LEO 7"
    assert "had waited for node 3" in chain.links[-1].reported
    assert chain.missing == ()


def test_moments_of_an_echo_are_corrected_by_its_clock_alone() -> None:
    """An echo that was written 19 s before the commit counts from it, and what it says of a node keeps its time."""
    left = {"replica_id": 3, "leo": 7, "last_fetch_us": BEGIN_US + 6_000_000, "last_caught_up_us": BEGIN_US + 6_000_000}
    echo = event("ISR_CHANGE", 30_000, plane="data", node=1, partition_epoch=5, old_isr=[1, 2, 3], new_isr=[1, 2],
                 cause="lag", removed=[left])  # fmt: skip
    reported = [
        event("ISR_CHANGE", 30_000, partition_epoch=5, old_isr=[1, 2, 3], new_isr=[1, 2], cause="lag"),
        replace(echo, raw_us=BEGIN_US + 11_000_000, clock_offset_us=2_000_000),
    ]
    chain = explain(reported, 5)

    found = {link.name: (link.t_us - BEGIN_US) / 1_000_000 for link in chain.links}
    assert found == {"commit": 30.0, "last fetch": 4.0, "last caught up": 4.0}


def test_a_leader_that_waited_for_itself_waited_for_its_disk() -> None:
    """A move that its own log held up names no node: the leader is in step with itself."""
    assert sentence(_move(10, 6, 7, blocking_replicas=[1])) == "HW 6 -> 7, had waited for its own disk"
    assert sentence(_move(10, 6, 7, blocking_replicas=[1, 3])) == "HW 6 -> 7, had waited for nodes 1, 3"


def test_moments_of_a_look_are_corrected_by_its_clock_alone() -> None:
    """A look that was written before the decision it knows of says when a node last fetched by its own clock."""
    look = _look(2_500, 3, leo=9, durable_leo=9, last_fetch_us=BEGIN_US + 400_000, last_caught_up_us=BEGIN_US + 300_000)
    chain = explain_stall(stall(2_000, 4_000), [replace(look, raw_us=BEGIN_US + 1_900_000, clock_offset_us=200_000)])

    found = {link.name: (link.t_us - BEGIN_US) / 1_000 for link in chain.links}
    assert (found["last look"], found["last fetch"], found["last caught up"]) == (2_500.0, 200.0, 100.0)


def test_what_is_not_there_is_named_and_a_wrong_epoch_refused() -> None:
    """A leader's shrink without its proposal is marked so; an epoch without a decision has candidates instead."""
    bare = event("ISR_CHANGE", 30, partition_epoch=5, old_isr=[1, 2], new_isr=[1], cause="lag", initiator="leader")

    assert "the leader's proposal" in explain([bare], 5).missing
    with pytest.raises(LookupError, match="partition epoch 9"):
        explain([bare], 9)
    assert candidates([bare]) == [bare]


def _look(at_ms: float, replica: int, *, node: int = 1, **said: object) -> Event:
    reported = {"replica_id": replica, "leader_leo": 20, "hw": 9, "leo": 20, **said}
    return event("REPLICA_SAMPLE", at_ms, plane="data", node=node, leader_epoch=0, partition_epoch=0, **reported)


def _move(at_ms: float, old_hw: int, new_hw: int, **said: object) -> Event:
    return event("HW_ADVANCE", at_ms, plane="data", node=1, partition_epoch=0, old_hw=old_hw, new_hw=new_hw, **said)


def test_a_cut_is_reported_with_what_was_acknowledged_to_clients() -> None:
    """The old leader had acknowledged up to 11; the truncation [10, 12) removes one acknowledged record."""
    reported = [_move(1_000, 8, 9), _look(1_600, 1, acked_offset=11, leo=12, leader_leo=12), *failover(), *samples()]
    chain = explain(reported, 1)

    assert chain.cost[1] == (
        "node 1 cut offsets [10, 12): none of them committed, 1 acknowledged as of the last look, 400 ms before the "
        "change"
    )


def test_a_cut_above_everything_acknowledged_says_none() -> None:
    """Acknowledged up to 10, truncated from 10 on: no acknowledged record is gone."""
    chain = explain([_look(1_600, 1, acked_offset=10), *failover()], 1)

    assert "none acknowledged as of the last look" in chain.cost[0]
    assert not any("acknowledged" in missing for missing in chain.missing)


def test_a_decision_says_how_many_waited_and_how_long() -> None:
    """Waiting counts from the last HW move before the decision to the first after it; here 3 records, 2 with acks=1."""
    bare = event("ISR_CHANGE", 3_000, partition_epoch=5, old_isr=[1, 2], new_isr=[1], cause="lag", initiator="leader")
    waiting = _look(2_000, 1, leader_leo=12, hw=9, acked_offset=11)
    after = event("HW_ADVANCE", 3_100, plane="data", node=1, partition_epoch=5, old_hw=9, new_hw=12)

    assert explain([_move(1_000, 8, 9), waiting, bare, after], 5).cost == (
        "the HW stood at 9 for 2,100 ms; up to 3 records waited for their commit, "
        "up to 2 of them acknowledged already (acks=1)",
    )
    assert "no look in that time" in explain([_move(1_000, 8, 9), bare, after], 5).cost[0]


def test_a_move_that_never_came_is_not_taken_for_a_standstill() -> None:
    """The epoch began above the last known move: a killed leader's last moves were never exported."""
    bare = event("ISR_CHANGE", 3_000, partition_epoch=5, old_isr=[1, 2], new_isr=[1], cause="lag", initiator="leader")
    begun = event("EPOCH_START", 3_050, plane="data", node=2, partition_epoch=5, leader_epoch=1, start_offset=90, hw=85)
    after = event("HW_ADVANCE", 3_100, plane="data", node=1, partition_epoch=5, old_hw=85, new_hw=90)
    chain = explain([_move(1_000, 8, 9), bare, begun, after], 5)

    assert chain.cost == ("the last known move of the HW is to 9, 2,100 ms before the next",)
    assert chain.missing[-1] == (
        "how long the high watermark stood: it had reached 85 by a move that is not in the export"
    )


def test_an_election_after_an_outage_is_reported_from_the_loss_of_the_leader() -> None:
    """Last heartbeat, fence, loss and 30 s without a leader belong to an unclean election."""
    chain = explain(outage(reason="unclean_election", election_type="unclean"), 3)

    assert [(link.name, (link.t_us - BEGIN_US) / 1000) for link in chain.links] == [
        ("last heartbeat", 500),
        ("fence", 3_000),
        ("leader lost", 3_000),
        ("commit", 33_000),
    ]
    assert "no node led for 30,000 ms" in chain.cost


def test_a_move_of_a_past_leader_does_not_end_the_wait() -> None:
    """Node 1 moved its own HW after it was removed; waiting producers waited for the new epoch's move at 2,600 ms."""
    zombie = _move(2_200, 9, 10)
    chain = explain([_move(1_000, 8, 9), *failover(), zombie, *samples()], 1)

    assert chain.cost[0].startswith("the HW stood at 9 for 1,600 ms")
    assert [link.t_us for link in chain.links if link.name == "HW move"] == [BEGIN_US + 2_600_000]


def test_a_stall_names_who_held_it_up_and_when_that_node_was_last_in_step() -> None:
    """The last move, the first record that waited, the blocker's last fetch and last caught-up, and what ended it."""
    times = {"last_fetch_us": BEGIN_US + 2_500_000, "last_caught_up_us": BEGIN_US + 900_000}
    reported = [
        _move(1_000, 8, 9),
        _look(3_000, 1),
        _look(3_000, 3, leo=9, durable_leo=9, **times),
        _move(4_000, 9, 20, blocking_replicas=[3]),
    ]
    chain = explain_stall(stall(1_200, 4_000), reported)

    assert [(link.name, (link.t_us - BEGIN_US) / 1000) for link in chain.links] == [
        ("last caught up", 900),
        ("last HW move", 1_000),
        ("first wait", 1_200),
        ("last fetch", 2_500),
        ("last look", 3_000),
        ("HW move", 4_000),
    ]
    assert chain.reported == "HW stood at 9 for 2,800 ms, held up by node 3; the next move ended it"
    assert chain.cost == ("up to 11 records waited for their commit",)
    assert chain.missing == ()


def test_looks_of_a_stall_are_found_by_the_controllers_clock() -> None:
    """The leader's clock is 5 s ahead: records that waited before the stall are not part of it, as in S18."""
    reported = [
        replace(e, raw_us=e.t_us + 5_000_000)
        for e in (_look(1_000, 1, leader_leo=500), _look(1_200, 1), _look(1_200, 3, leo=9, durable_leo=9))
    ]
    chain = explain_stall(stall(1_200, 4_000), [_move(1_000, 8, 9), *reported, _move(4_000, 9, 20)])

    assert chain.cost == ("up to 11 records waited for their commit",)
    assert chain.missing == ()


def test_a_stall_without_its_moves_and_looks_says_what_is_not_known() -> None:
    """Nothing is invented where the export has no move and no sample."""
    assert explain_stall(stall(1_200, 4_000), []).missing == (
        "the move that brought the HW to 9",
        "a move of the high watermark afterwards",
        "how far node 3 had come",
    )


# Why readers of committed records stood still, in sentences, and what is said to be not known.


S = 1_000_000


HOLD = HeldLso(
    t0=BEGIN_US + 10 * S,
    t1=BEGIN_US + 40 * S,
    first_offset=1_000,
    producer_id=7,
    producer_epoch=3,
    outcome="abort",
    largest_hw=1_250,
)


def _change(at_s: float, cause: str, epoch: int = 3) -> Event:
    said = {"transactional_id": "pay", "producer_id": 7, "producer_epoch": epoch, "cause": cause}
    return event("TRANSACTION_CHANGE", at_s * 1_000, plane="data", node=2, **said)


def _explained(at_s: float = 30, **known: Any) -> HeldBack:
    return explain_held_back(PartitionAt(cluster_id="c", partition="t-0", at_us=BEGIN_US + round(at_s * S), **known))


def test_the_holder_is_named_with_what_waited_and_what_ended_it() -> None:
    """Its producer, transactional id, since when, how many records, the coordinator's decision and the marker."""
    found = _explained(
        holds=[HOLD], changes=[_change(9, "committed", 2), _change(39, "timeout"), _change(50, "aborted", 4)]
    )

    assert found.reasons == (
        "producer 7 of epoch 3 (pay) held the LSO at 1,000: for 20.0 s by then; up to 250 records waited",
        "its coordinator aborted it: it was open for longer than its time-out, 9.0 s later",
        "the abort marker was committed 10.0 s later",
    )
    assert found.missing == ()


def test_what_no_event_reports_is_named() -> None:
    """Without a coordinator's word the id is not known, without a leader's the end; a producer may be unknown, too."""
    unknown = replace(HOLD, producer_id=None, producer_epoch=None, outcome=None, largest_hw=None)
    found = _explained(holds=[unknown])

    assert found.reasons == ("a transaction of an unknown producer held the LSO at 1,000: for 20.0 s by then",)
    assert found.missing == (
        "its transactional id: no event of a coordinator names the producer",
        "its end in the partition: no leader reported that its marker was committed",
    )


def test_a_decision_that_was_before_the_moment_says_so() -> None:
    """The marker may come late: then the coordinator had decided already."""
    found = _explained(38, holds=[HOLD], changes=[_change(35, "aborted")])

    assert found.reasons[1] == "its producer aborted it, 3.0 s before"
    assert found.reasons[2] == "the abort marker was committed 2.0 s later"


def test_a_begin_alone_is_no_end() -> None:
    """The id is known, and the decision is not."""
    found = _explained(holds=[HOLD], changes=[_change(11, "begun")])

    assert found.missing == ("what ended it at its coordinator",)


def test_without_a_holder_the_answer_points_to_the_hw() -> None:
    """At the end of a hold it holds no more."""
    for at_s in (9.9, 40):
        found = _explained(at_s, holds=[HOLD])

        assert found.reasons == (
            "no transaction held the LSO back for a second or longer then; `explain --stall` is about the HW",
        )
        assert found.links == ()


def test_the_links_are_the_events_of_the_holder() -> None:
    """Of the partition those of its first offset, of the coordinator those of its time; repetitions are left out."""
    own = {"first_offset": 1_000, "producer_id": 7}
    found = _explained(
        holds=[HOLD],
        changes=[_change(1, "init"), _change(11, "begun"), _change(20, "repeated"), _change(39, "timeout")],
        events=[
            event("TRANSACTION_OPEN", 11_000, plane="data", node=1, cause="open", hw=1_200, **own),
            event("TRANSACTION_OPEN", 20_000, plane="data", node=1, cause="repeated", hw=1_250, **own),
            event("TRANSACTION_OPEN", 20_000, plane="data", node=1, cause="open", first_offset=2_000),
            event("TRANSACTION_DECIDED", 40_000, plane="data", node=1, outcome="abort", held_ms=30_000, **own),
        ],
    )

    assert [(link.name, link.cause) for link in found.links] == [
        ("partition", "open"),
        ("coordinator", "begun"),
        ("coordinator", "timeout"),
        ("partition", "abort"),
    ]
