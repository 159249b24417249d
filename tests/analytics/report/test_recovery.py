"""When the ISRs of an incident are whole again: of partitions that heal one after the other, and of those that were
not whole before."""

from __future__ import annotations

from dataclasses import replace

from reported_material import BEGIN_US, event, material

from strandline_analytics.report.material import incidents_of
from strandline_analytics.timeline.event import Event

_ALL = [1, 2, 3]


def _created(partition: int) -> list[Event]:
    return [
        event("CONFIG_CHANGE", 0, partition=partition, partition_epoch=0, topic_created=True, replicas=_ALL, min_isr=2),
        event("STATE_SNAPSHOT", 0, partition=partition, partition_epoch=0, leader_epoch=0, new_leader=1, new_isr=_ALL),
    ]


def _isr(at_s: float, partition: int, epoch: int, old: list[int], new: list[int]) -> Event:
    cause = "lag" if len(new) < len(old) else "catch_up"
    return event("ISR_CHANGE", at_s * 1_000, partition=partition, partition_epoch=epoch, leader_epoch=0, old_isr=old,
                 new_isr=new, cause=cause, initiator="leader")  # fmt: skip


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
