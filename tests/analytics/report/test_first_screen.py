"""The first screen of a report: whom the worst incident is about, what it cost, and what to do next."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from reported_material import BEGIN_US, event, failover, material, unclean

from strandline_analytics.report.incident import Incident
from strandline_analytics.report.material import Material, incidents_of
from strandline_analytics.report.page import page, render
from strandline_analytics.timeline.event import Event

_PAUSED = {
    "rule": "node_paused",
    "subject": "node 1",
    "says": "node 1 stood still: it is in 5 of 5 removals of one moment, and was not fenced",
    "contradiction": "node 1 logged anything",
    "evidence": ["meta_offset 303"],
    "strength": 5,
}


def _lagging(*found: dict[str, Any]) -> Material:
    """Three partitions lose nodes 1, 2 and 3 for lag, for the same inferred causes."""
    everybody = [1, 2, 3]
    events: list[Event] = []
    for gone in everybody:
        left = [node for node in everybody if node != gone]
        begin = [replace(e, partition=gone) for e in failover()[:3]]
        shrink = event("ISR_CHANGE", 2_000, partition=gone, partition_epoch=1, leader_epoch=0, old_isr=everybody,
                       new_isr=left, cause="lag", initiator="leader")  # fmt: skip
        back = event("ISR_CHANGE", 5_000, partition=gone, partition_epoch=2, leader_epoch=0, old_isr=left,
                     new_isr=everybody, cause="catch_up", initiator="leader")  # fmt: skip
        ext = {"inferred": json.dumps(found)} if found else {}
        events += [*begin, replace(shrink, ext=ext), back]
    return material(events=events)


def _with(reported: Material, statistic: str, **values: Any) -> Material:
    found = reported.results.get(statistic, reported.results["s07"])
    row = {"cluster_id": "c", "topic_id": "T", "topic": "t", "partition": 0, "coverage": 1.0, **values}
    return replace(reported, results={**reported.results, statistic: replace(found, rows=[row])})


def test_the_worst_incident_has_culprit_cost_and_next_step() -> None:
    """A failover: node 1 with cause and downtime; refused writes and the time to be whole; where to look."""
    found = page(_with(material(), "s11", write_unavailable_us=1_500_000))["worst"]

    assert found.who == "node 1 (node fenced, down 18:08:32.000 to 18:08:34.000)"
    assert found.cost == ("writes refused for up to 1.5 s in one partition", "ISRs whole again: after 3 s")
    assert found.step.todo == "Look at its exit code and last line, and start it again; it catches up by itself."


def test_the_cost_of_an_unclean_election_is_what_was_lost() -> None:
    """Exactly, at least, or not known; the next step is that of the loss, before that of the node."""

    def cost(**values: int | None) -> str:
        return str(page(_with(material(events=unclean()), "s07", **values))["worst"].cost[0])

    assert cost(committed_lost_records=65, epochs_unknown=0) == "65 committed records lost"
    assert cost(committed_lost_records=1_040, epochs_unknown=1) == "at least 1,040 committed records lost"
    assert cost(committed_lost_records=None, epochs_unknown=1) == "how many committed records were lost is not known"
    reason = replace(unclean()[5], fields={**unclean()[5].fields, "reason": "unclean_election"})
    events = [reason if e.event_type == "LEADER_CHANGE" and e.partition_epoch == 1 else e for e in unclean()]
    step = page(material(events=events))["worst"].step
    assert step.todo == "Tell the producers that must know, and count what was lost from the data."


def test_the_headline_leads_to_the_worst_incident() -> None:
    """Of two incidents the one with an unclean election, though it came later, and nothing where nothing happened."""
    later = [replace(e, t_us=e.t_us + 100_000_000, partition=1) for e in unclean()]
    html = render(replace(material(events=[*failover(), *later]), end_us=BEGIN_US + 300_000_000))
    calm = render(material(events=failover()[:3]))

    assert '<a href="#incident-1">' in html.split('id="verdict">')[1].split("</p>")[0]
    assert "unclean election" in html.split('<article id="incident-1"')[1].split("</h3>")[0]
    assert 'id="worst"' not in calm


def test_what_statistics_know_of_a_shared_partition_is_said_to_be_of_the_window() -> None:
    """The partition's refused writes may be of its other incident."""
    later = [
        replace(e, t_us=e.t_us + 100_000_000, partition_epoch=(e.partition_epoch or 0) + 2) for e in failover()[3:]
    ]
    both = replace(material(events=[*failover(), *later]), end_us=BEGIN_US + 300_000_000)
    cost = page(_with(both, "s11", write_unavailable_us=1_500_000))["worst"].cost

    assert cost[0] == "writes refused for up to 1.5 s in one partition over the window"


def _only(reported: Material) -> Incident:
    (incident,) = incidents_of(reported)
    return incident


def test_an_inferred_cause_stands_where_the_recorded_one_says_little() -> None:
    """Of removals for lag that node 1's pause explains: marked in headline, row and first screen, with its own step."""
    reported = _lagging(_PAUSED)
    shown = page(reported)

    assert dict(_only(reported).culprits) == {1: 3}
    assert "1 incident: node 1 (inferred: node 1 stood still)" in shown["verdict"].headline
    assert shown["worst"].who == "node 1 (inferred: node 1 stood still)"
    assert [step.cause for step in shown["incidents"][0]["steps"]] == ["inferred: node 1 stood still", "lag"]
    assert shown["worst"].step.todo.startswith("Look for what stopped it for so long")


def test_a_tie_of_inferred_causes_names_no_culprit() -> None:
    """Two that explain the same are both named, and the nodes stay those that were removed."""
    other = _PAUSED | {"subject": "node 2", "says": "node 2 stood still: as well"}
    reported = _lagging(_PAUSED, other)

    assert sorted(_only(reported).culprits) == [1, 2, 3]
    assert page(reported)["worst"].who.endswith("(inferred: node 1 stood still; or node 2 stood still)")


def test_a_failover_without_heartbeats_is_said_to_be_a_part() -> None:
    """Where no heartbeat is recorded detection is not in the time: to elect and to begin, 20 ms."""
    unheard = [replace(e, fields={k: v for k, v in e.fields.items() if k != "last_heartbeat_us"}) for e in failover()]

    assert page(material())["incidents"][0]["failover"] == "1.52 s"
    assert page(material(events=unheard))["incidents"][0]["failover"] == "20 ms to elect and to begin"


def test_a_cut_that_does_not_say_from_where_has_no_size() -> None:
    """Logs of another system may lack the end of a log: the cut is shown, and counts no records."""
    reported = [
        replace(e, fields={k: v for k, v in e.fields.items() if k != "from_leo"}) if e.event_type == "TRUNCATION" else e
        for e in failover()
    ]
    complete = material()

    assert _only(replace(complete, events=reported)).cut_records == 0
    assert "log cut to 10, none below its HW" in render(replace(complete, events=reported))
