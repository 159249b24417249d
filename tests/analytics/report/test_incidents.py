"""The incidents of a report: outages, failovers, recovery, lost records, and nodes that are down."""

from __future__ import annotations

from dataclasses import replace

from reported_material import BEGIN_US, event, failover, material, outage, stall, unclean

from strandline_analytics.report.failovers import Losses, failovers, loss_parts
from strandline_analytics.report.incident import Incident
from strandline_analytics.report.material import Material, incidents_of
from strandline_analytics.report.page import page
from strandline_analytics.timeline.event import Event
from strandline_analytics.timeline.states import downs

_ALL = [1, 2, 3]


def _created(partition: int, leader: int = 1) -> list[Event]:
    return [
        event("CONFIG_CHANGE", 0, partition=partition, partition_epoch=0, topic_created=True, replicas=_ALL, min_isr=2),
        event("STATE_SNAPSHOT", 0, partition=partition, partition_epoch=0, leader_epoch=0, new_leader=leader,
              new_isr=_ALL),
    ]  # fmt: skip


def _isr(at_s: float, partition: int, epoch: int, old: list[int], new: list[int], cause: str | None = None) -> Event:
    cause = cause or ("lag" if len(new) < len(old) else "catch_up")
    initiator = "controller" if cause == "node_fenced" else "leader"
    return event("ISR_CHANGE", at_s * 1_000, partition=partition, partition_epoch=epoch, leader_epoch=0, old_isr=old,
                 new_isr=new, cause=cause, initiator=initiator)  # fmt: skip


def _elected(at_s: float, partition: int, epoch: int, old: int, new: int, kind: str = "isr") -> Event:
    return event("LEADER_CHANGE", at_s * 1_000, partition=partition, partition_epoch=epoch, leader_epoch=epoch,
                 old_leader=old, new_leader=new, new_leader_epoch=epoch, reason="node_fenced",
                 election_type=kind)  # fmt: skip


def _material(*events: Event, end_s: int = 400) -> Material:
    ordered = sorted(events, key=lambda e: (e.partition or 0, e.partition_epoch or 0, e.t_us))
    return replace(material(events=ordered), end_us=BEGIN_US + end_s * 1_000_000)


def _shown(found: list[Incident]) -> list[tuple[float, int, int, float | None]]:
    """When each began, its shrinks and elections, and when it was over, s."""
    return [
        (
            (i.began_us - BEGIN_US) / 1_000_000,
            len(i.shrinks),
            len(i.elections),
            None if i.recovered_us is None else (i.recovered_us - BEGIN_US) / 1_000_000,
        )
        for i in found
    ]


def test_a_kill_that_is_noticed_twice_is_one_incident() -> None:
    """Leaders remove node 2 for lag at 10 s; its session ends at 21 s, and it loses what it led: one row."""
    killed = (
        *_created(0, 1),
        *_created(1, 2),
        _isr(10, 0, 1, _ALL, [1, 3]),
        _isr(21, 1, 1, _ALL, [1, 3], "node_fenced"),
        _elected(21, 1, 1, 2, 1),
        _isr(60, 0, 2, [1, 3], _ALL, "catch_up"),
        _isr(61, 1, 2, [1, 3], _ALL, "catch_up"),
    )

    assert _shown(incidents_of(_material(*killed))) == [(10.0, 2, 1, 61.0)]


def test_a_paused_leader_that_removes_others_when_it_goes_on_is_one_incident() -> None:
    """Node 1 is removed at 10 s; at 20 s it is back, and as a leader takes out nodes 2 and 3: one row."""
    paused = (
        *_created(0, 2),
        *_created(1, 1),
        _isr(10, 0, 1, _ALL, [2, 3]),
        _isr(20, 0, 2, [2, 3], _ALL, "catch_up"),
        _isr(20.5, 1, 1, _ALL, [1, 3]),
        _isr(21, 1, 2, [1, 3], _ALL, "catch_up"),
    )

    assert _shown(incidents_of(_material(*paused))) == [(10.0, 2, 0, 21.0)]


def test_a_partition_that_loses_more_within_a_minute_is_in_the_same_outage() -> None:
    """Node 3 left at 10 s, node 2 leaves the same partition at 50 s: one row; at 90 s it would be another one."""

    def lost(at_s: float) -> Material:
        return _material(
            *_created(0, 1), _isr(10, 0, 1, _ALL, [1, 2]), _isr(at_s, 0, 2, [1, 2], [1]),
            _isr(300, 0, 3, [1], _ALL, "catch_up"),
        )  # fmt: skip

    assert _shown(incidents_of(lost(50))) == [(10.0, 2, 0, 300.0)]
    assert _shown(incidents_of(lost(90))) == [(10.0, 1, 0, 300.0), (90.0, 1, 0, 300.0)]


def test_another_trouble_of_a_node_that_was_back_is_another_incident() -> None:
    """Node 3 is whole again at 11 s; what happens to it at 100 s has nothing to do with that."""
    twice = (
        *_created(0, 1),
        _isr(10, 0, 1, _ALL, [1, 2]),
        _isr(11, 0, 2, [1, 2], _ALL, "catch_up"),
        _isr(100, 0, 3, _ALL, [1, 2]),
        _isr(101, 0, 4, [1, 2], _ALL, "catch_up"),
    )

    assert [began for began, *_ in _shown(incidents_of(_material(*twice)))] == [10.0, 100.0]


def test_a_cut_belongs_to_one_incident_of_its_own_cluster() -> None:
    """Node 2 cuts its log at 15 s, after an election at 10 s; one of another cluster at 12 s is not its reason."""
    cut = event("TRUNCATION", 15_000, plane="data", node=2, partition_epoch=1, from_leo=9, to_leo=7, committed_cut=2)
    own = [*_created(0, 1), _elected(10, 0, 1, 1, 2), cut]
    other = [replace(e, cluster_id="d") for e in (*_created(0, 1), _elected(12, 0, 1, 1, 2))]
    found = incidents_of(_material(*own, *other))

    assert [(i.cluster_id, len(i.truncations), i.is_severe) for i in found] == [("c", 1, True), ("d", 0, False)]


def test_what_may_have_lost_records_comes_first() -> None:
    """A lag at 10 s, an unclean election at 200 s: the election is the first row, and the others are by time."""
    found = incidents_of(
        _material(
            *_created(0, 1),
            *_created(1, 2),
            _isr(10, 0, 1, _ALL, [1, 2]),
            _isr(11, 0, 2, [1, 2], _ALL, "catch_up"),
            _isr(100, 0, 3, _ALL, [1, 2]),
            _isr(101, 0, 4, [1, 2], _ALL, "catch_up"),
            _isr(200, 1, 1, _ALL, [3], "node_fenced"),
            _elected(200, 1, 1, 2, 3, "unclean"),
        )
    )

    assert [(i.number, (i.began_us - BEGIN_US) // 1_000_000) for i in found] == [(1, 200), (2, 10), (3, 100)]


def test_a_stall_that_a_culprit_held_up_is_in_its_incident() -> None:
    """Node 1 is in trouble and holds up another partition, from which it is not removed: no row of its own."""
    other = replace(stall(1_500, 3_000), partition=5, blockers=(1,))
    (incident,) = incidents_of(replace(material(events=failover()), stalls=(other,)))

    assert incident.stalls == [other]


# The three moments of a failover.


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
    begun = event("EPOCH_START", 33_050, plane="data", node=2, partition_epoch=3, leader_epoch=2, start_offset=9, hw=9)
    (found,) = failovers([*outage(reason="election", election_type="elr"), begun], BEGIN_US, BEGIN_US + 90_000_000)

    assert (found.old_leader, found.new_leader) == (1, 2)
    assert (found.fence_us - found.last_heartbeat_us, found.decided_us - found.fence_us) == (2_500_000, 30_000_000)


def test_the_new_leaders_first_word_is_in_the_controllers_time() -> None:
    """A new leader's clock 5 s ahead, measured to 3 ms, does not change the failover's length; the error is shown."""
    skewed = [
        replace(e, raw_us=e.t_us + 5_000_000, err_us=3_000) if e.event_type == "EPOCH_START" else e for e in failover()
    ]
    (found,) = failovers(skewed, BEGIN_US, END_US)

    assert (found.epoch_start_us - BEGIN_US, found.clock_err_us) == (2_020_000, 3_000)


# When the ISRs of an incident are whole again: of partitions that heal one after the other, and of those that were not
# whole before.


def _recovered_s(events: list[Event], end_s: int = 200) -> list[float | None]:
    ordered = sorted(events, key=lambda e: (e.partition or 0, e.partition_epoch or 0, e.t_us))
    reported = material(events=ordered)
    moments = sorted(e.t_us for e in events if len(e.get("new_isr") or ()) < len(e.get("old_isr") or ()))
    chain = {"cluster_id": "c", "kind": "unplanned", "shrinks": 2, "label": None}
    chains = [chain | {"began_us": moments[0], "ended_us": moments[1]}]
    chains += [chain | {"began_us": at_us, "ended_us": at_us} for at_us in moments[2:]]
    results = {**reported.results, "s17": replace(reported.results["s17"], rows=chains)}
    found = incidents_of(replace(reported, results=results, end_us=BEGIN_US + end_s * 1_000_000))
    return [None if i.recovered_us is None else (i.recovered_us - BEGIN_US) / 1_000_000 for i in found]


def _staggered() -> list[Event]:
    """Partition 0 is out from 10 to 11 s, partition 1 from 12 to 13 s."""
    return [
        *(one for partition in (0, 1) for one in _created(partition)),
        _isr(10, 0, 1, _ALL, [1, 2]),
        _isr(11, 0, 2, [1, 2], _ALL),
        _isr(12, 1, 1, _ALL, [1, 2]),
        _isr(13, 1, 2, [1, 2], _ALL),
    ]


def test_a_partition_that_healed_before_the_last_shrink_is_whole() -> None:
    """Whole from 11 s on and never out again: the incident is over when the other one is back, at 13 s."""
    assert _recovered_s(_staggered()) == [13.0]


def test_a_later_incident_of_a_healed_partition_is_not_waited_for() -> None:
    """It is taken out again at 100 s, until 160 s: that is the recovery of the second incident alone."""
    again = [_isr(100, 0, 3, _ALL, [1, 2]), _isr(160, 0, 4, [1, 2], _ALL)]

    assert _recovered_s([*_staggered(), *again]) == [13.0, 160.0]


def test_an_isr_is_whole_when_it_has_all_replicas_and_not_as_many_as_before() -> None:
    """Node 3 has been out since 10 s, node 2 is out from 50 to 51 s: whole only when node 3 is back too, at 90 s."""
    events = [
        *_created(0),
        *_created(1),
        _isr(10, 0, 1, _ALL, [1, 2]),
        _isr(10.5, 1, 1, _ALL, [1, 2]),
        _isr(50, 0, 2, [1, 2], [1]),
        _isr(51, 0, 3, [1], [1, 2]),
        _isr(80, 1, 2, [1, 2], _ALL),
    ]

    assert _recovered_s([*events, _isr(90, 0, 4, [1, 2], _ALL)])[-1] == 90.0
    assert _recovered_s(events)[-1] is None


def test_a_return_that_was_read_counts_whatever_was_lost_behind_it() -> None:
    """Back at 11 s by partition epoch 2, and epoch 3 is lost: whole again at 11 s, and not what follows the hole."""
    lost = [_isr(100, 0, 4, _ALL, [1, 2]), _isr(160, 0, 5, [1, 2], _ALL)]
    both = [one for one in _staggered() if one.partition == 0 or one.event_type != "ISR_CHANGE"]
    second = _isr(10.5, 1, 1, _ALL, [1, 2]), _isr(10.9, 1, 2, [1, 2], _ALL)

    assert _recovered_s([*both, *second, *lost])[0] == 11.0


# What a report says of lost committed records: how many, how large, how many of them could be avoided.


_OF_LOSSES = (
    "committed_lost_records",
    "committed_lost_min_bytes",
    "committed_lost_max_bytes",
    "avoidable_lost_records",
)


def test_a_loss_has_its_size_and_the_part_that_could_be_avoided() -> None:
    """65 records of 6 to 7 KiB, 15 of which another live replica had: in the headline, the tile and the data."""
    shown = page(material(events=unclean(), lost=65, lost_bytes=(6_144, 7_168), avoidable=15))
    (tile,) = (fact for fact in shown["facts"] if fact.name == "committed records lost")

    words = "6.0 KiB to 7.0 KiB, at least 15 of them avoidable: another live replica had them"
    assert shown["verdict"].headline.startswith(f"Committed records were lost: 65, {words}, in 1 incident")
    assert tile.note == words.replace(", ", "; ")
    figures = [shown["data"][name] for name in _OF_LOSSES]
    assert figures == [65, 6_144, 7_168, 15]


def test_of_a_loss_that_is_not_known_in_bytes_the_least_is_said() -> None:
    """Without an upper bound it is at least so much; without any it is nothing, and null in the data."""
    least = page(material(events=unclean(), lost=65, lost_bytes=(6_144, None)))["verdict"].headline
    neither = page(material(events=unclean(), lost=65))

    assert least.startswith("Committed records were lost: 65, at least 6.0 KiB, in 1 incident")
    assert neither["verdict"].headline.startswith("Committed records were lost: 65, in 1 incident")
    assert [neither["data"][name] for name in _OF_LOSSES] == [65, None, None, None]


def test_a_loss_beside_an_unknown_one_has_no_upper_bound() -> None:
    """The epoch of unknown loss may have lost any number of bytes: the known 6 KiB are the least."""
    shown = page(material(events=unclean(), lost=65, epochs_unknown=1, lost_bytes=(6_144, 6_144)))

    assert ", at least 6.0 KiB, in 1 incident" in shown["verdict"].headline
    assert [shown["data"][name] for name in _OF_LOSSES] == [65, 6_144, None, None]


def test_a_size_of_which_one_bound_is_known_or_both_are_equal_is_said_once() -> None:
    """Equal bounds are one size, and a lower bound of 0 is none."""
    assert loss_parts(Losses(records=65, min_bytes=6_144, max_bytes=6_144)) == ["6.0 KiB"]
    assert loss_parts(Losses(records=65, min_bytes=0, max_bytes=6_144)) == ["at most 6.0 KiB"]


def test_where_nothing_was_lost_no_byte_was_and_an_unknown_loss_has_no_size() -> None:
    """0 in each figure of the data, or null in each."""
    none = page(material(lost=0))["data"]
    unknown = page(material(events=unclean(), lost=None))["data"]

    assert [none[name] for name in _OF_LOSSES] == [0, 0, 0, 0]
    assert [unknown[name] for name in _OF_LOSSES] == [None, None, None, None]


# Until when a node counts as down in a picture.


def test_a_removed_node_is_not_down_any_more() -> None:
    """A node is down from its fence to its return or its removal, and otherwise to the end of what is shown."""
    reported = [
        event("NODE_SESSION", at_ms, plane="node", subject_node_id=node_id, phase=phase, cause="requested")
        for at_ms, node_id, phase in [
            (0, 1, "fence"),
            (0, 2, "fence"),
            (0, 3, "fence"),
            (5, 1, "unfence"),
            (7, 2, "unregister"),
        ]
    ]
    found = {down.node_id: (down.t1 - BEGIN_US) // 1_000 for down in downs(reported, BEGIN_US + 90_000)}

    assert found == {1: 5, 2: 7, 3: 90}
