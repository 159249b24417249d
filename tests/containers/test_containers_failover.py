"""Cases 2 and 3: the effects of a killed leader and a slow follower on the ISR, the logs and the events."""

from __future__ import annotations

import pytest
from played import Played

pytestmark = [pytest.mark.containers, pytest.mark.timeout(1_500)]


def test_a_killed_leader_is_replaced_and_cuts_its_tail(killed_leader: Played) -> None:
    """Another node leads within the session plus two seconds; the old one returns and truncates; nothing is lost.

    The load's history, and the equality of the three logs, were checked when the case was played.
    """
    assert killed_leader.failovers, "the killed node led something"
    assert max(killed_leader.failovers.values()) <= killed_leader.limit_s
    assert killed_leader.truncated > 0


def test_a_killed_leader_leaves_every_isr_once(killed_leader: Played) -> None:
    """One shrink of each partition with cause node_fenced, and one expand after its return."""
    assert killed_leader.changes == killed_leader.removals
    assert killed_leader.expands == killed_leader.removals.total()


def test_a_follower_that_falls_behind_leaves_once_for_each_cause(lagging_follower: Played) -> None:
    """Cut from its leader alone: one shrink with cause lag. Paused: one with cause node_fenced. Each heals."""
    assert lagging_follower.changes == lagging_follower.removals
    assert lagging_follower.expands == lagging_follower.removals.total()


def test_a_follower_that_stands_still_costs_what_it_leads_a_session(lagging_follower: Played) -> None:
    """The paused node's own partitions get another leader within session plus two seconds."""
    assert lagging_follower.failovers
    assert max(lagging_follower.failovers.values()) <= lagging_follower.limit_s
