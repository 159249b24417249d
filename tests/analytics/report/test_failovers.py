"""The three moments of a failover."""

from __future__ import annotations

from dataclasses import replace

from reported_material import BEGIN_US, event, failover

from strandline_analytics.report.failovers import failovers

END_US = BEGIN_US + 10_000_000


def test_a_failover_is_the_fence_the_decision_and_the_first_word_of_the_new_leader() -> None:
    """Creation is not a failover; of the fences before, the latest of the old leader counts."""
    earlier = event("NODE_SESSION", 500, plane="node", subject_node_id=1, phase="fence", cause="session_timeout")
    others = event("NODE_SESSION", 1_990, plane="node", subject_node_id=3, phase="fence", cause="session_timeout")
    (found,) = failovers([earlier, others, *failover()], BEGIN_US, END_US)

    assert (found.topic, found.partition, found.old_leader, found.new_leader, found.leader_epoch) == ("t", 0, 1, 2, 1)
    assert (found.fence_us - BEGIN_US, found.decided_us - BEGIN_US) == (2_000_000, 2_000_000)
    assert found.epoch_start_us - BEGIN_US == 2_020_000


def test_without_one_of_its_moments_nothing_is_reported() -> None:
    """A planned change has no fence, a silent new leader has no start, and changes outside the window do not count."""
    reported = failover()
    unfenced = [e for e in reported if e.get("phase") != "fence"]
    mute = [e for e in reported if e.event_type != "EPOCH_START"]

    assert failovers(unfenced, BEGIN_US, END_US) == []
    assert failovers(mute, BEGIN_US, END_US) == []
    assert failovers(reported, BEGIN_US + 3_000_000, END_US) == []


def test_an_election_after_an_outage_counts_from_the_fence_of_the_leader_that_was_lost() -> None:
    """No replica could be elected for 30 s: the decision took so long, and the lost leader is the old one (S19)."""
    reported = [
        event("NODE_SESSION", 3_000, plane="node", subject_node_id=1, phase="fence", cause="session_timeout",
              last_heartbeat_us=BEGIN_US + 500_000),
        event("LEADER_CHANGE", 3_000, partition_epoch=2, leader_epoch=1, old_leader=1, new_leader=-1,
              old_leader_epoch=0, new_leader_epoch=1, reason="node_fenced"),
        event("LEADER_CHANGE", 33_000, partition_epoch=3, leader_epoch=2, old_leader=-1, new_leader=2,
              old_leader_epoch=1, new_leader_epoch=2, reason="election", election_type="elr"),
        event("EPOCH_START", 33_050, plane="data", node=2, partition_epoch=3, leader_epoch=2, start_offset=9, hw=9),
    ]  # fmt: skip
    (found,) = failovers(reported, BEGIN_US, BEGIN_US + 90_000_000)

    assert (found.old_leader, found.new_leader) == (1, 2)
    assert (found.fence_us - found.last_heartbeat_us, found.decided_us - found.fence_us) == (2_500_000, 30_000_000)


def test_the_new_leaders_first_word_is_in_the_controllers_time() -> None:
    """A new leader's clock 5 s ahead, measured to 3 ms, does not change the failover's length; the error is shown."""
    skewed = [
        replace(e, raw_us=e.t_us + 5_000_000, err_us=3_000) if e.event_type == "EPOCH_START" else e for e in failover()
    ]
    (found,) = failovers(skewed, BEGIN_US, END_US)

    assert (found.epoch_start_us - BEGIN_US, found.clock_err_us) == (2_020_000, 3_000)
