"""One outage is one row: what goes on with it joins the incident that began it; what lost records comes first."""

from __future__ import annotations

from dataclasses import replace

from reported_material import BEGIN_US, event, failover, material, stall

from strandline_analytics.report.incident import Incident
from strandline_analytics.report.material import Material, incidents_of
from strandline_analytics.timeline.event import Event

_ALL = [1, 2, 3]


def _created(partition: int, leader: int) -> list[Event]:
    return [
        event("CONFIG_CHANGE", 0, partition=partition, partition_epoch=0, topic_created=True, replicas=_ALL, min_isr=2),
        event("STATE_SNAPSHOT", 0, partition=partition, partition_epoch=0, leader_epoch=0, new_leader=leader,
              new_isr=_ALL),
    ]  # fmt: skip


def _isr(at_s: float, partition: int, epoch: int, old: list[int], new: list[int], cause: str = "lag") -> Event:
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
    """Node 1 is in trouble and holds up another partition, from which nobody removes it: no row of its own."""
    other = replace(stall(1_500, 3_000), partition=5, blockers=(1,))
    (incident,) = incidents_of(replace(material(events=failover()), stalls=(other,)))

    assert incident.stalls == [other]
