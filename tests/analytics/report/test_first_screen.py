"""The first screen of a report, what the page folds, and the page of an export without changes."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from reported_material import BEGIN_US, event, failover, material, stall, unclean

from strandline_analytics.report.incident import Incident
from strandline_analytics.report.material import Declared, Material, Result, incidents_of
from strandline_analytics.report.page import data, page, render
from strandline_analytics.report.scenes import scenes
from strandline_analytics.report.tables import Content, stat_table
from strandline_analytics.report.verdict import verdict
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


# What the page folds: partitions to which the same happened, and statistics that have nothing to say.


def _of_partitions(number: int, **changed: Any) -> list[Event]:
    """`failover` in so many partitions; the events of the last one have these fields changed, by type."""
    found = failover()
    for partition in range(1, number):
        for each in failover():
            if each.partition is not None:
                fields = changed.get(each.event_type, {}) if partition == number - 1 and each.t_us > 0 else {}
                found.append(replace(each, partition=partition, fields={**each.fields, **fields}))
    return found


def _drawn(events: list[Event]) -> list[tuple[int, list[int]]]:
    """The partition of each drawing, and those that look like it."""
    reported = material(events=events)
    found = incidents_of(reported)
    return [(scene.key[2], sorted(key[2] for key in scene.alike)) for scene in scenes(found[0], found, reported)]  # type: ignore[misc]


def test_of_partitions_that_look_alike_one_is_drawn() -> None:
    """The same failover in four partitions is one picture, which names the other three."""
    shown = page(material(events=_of_partitions(4)))["incidents"][0]

    assert [picture["title"] for picture in shown["pictures"]] == ["t-0"]
    assert shown["pictures"][0]["alike"] == "3 more partitions look the same: t-1, t-2, t-3"
    assert shown["left_out"] == ""


def test_another_new_leader_other_offsets_and_times_are_no_difference() -> None:
    """Partition 2 is led by node 3 afterwards, starts elsewhere and cuts more: it is the same picture."""
    events = _of_partitions(
        3, LEADER_CHANGE={"new_leader": 3}, EPOCH_START={"start_offset": 70}, TRUNCATION={"from_leo": 90, "to_leo": 70}
    )

    assert [sorted((drawn, *alike)) for drawn, alike in _drawn(events)] == [[0, 1, 2]]


def test_a_cut_below_the_high_watermark_is_a_difference() -> None:
    """Partition 2 cut committed records; partition 1 did not, and looks like partition 0."""
    assert sorted(_drawn(_of_partitions(3, TRUNCATION={"committed_cut": 2}))) == [(0, [1]), (2, [])]


def test_another_cause_or_another_node_is_a_difference() -> None:
    """Who left an ISR, and why, is in the likeness."""
    assert len(_drawn(_of_partitions(2, ISR_CHANGE={"cause": "lag"}))) == 2
    assert len(_drawn(_of_partitions(2, ISR_CHANGE={"old_isr": [1, 2, 3, 4]}))) == 2


def test_a_partition_whose_high_watermark_stalled_is_not_like_one_whose_did_not() -> None:
    """The stall of partition 0 keeps it apart from partition 1."""
    reported = material(events=_of_partitions(2), stalls=(stall(2_100, 3_500),))
    found = incidents_of(reported)

    assert [scene.alike for scene in scenes(found[0], found, reported)] == [(), ()]


def test_a_later_change_of_one_partition_is_a_difference() -> None:
    """Node 3 leaves the ISR of partition 1 before node 1 is back."""
    again = event("ISR_CHANGE", 4_500, partition=1, partition_epoch=2, leader_epoch=1, old_isr=[2, 3], new_isr=[2],
                  cause="lag_stuck", initiator="leader")  # fmt: skip

    assert len(_drawn([*_of_partitions(2), again])) == 2


def _result(rows: list[dict[str, Any]], **changed: Any) -> Result:
    declared = (Declared(name="worst", unit="records", meaning="m"), Declared(name="mean", unit="records", meaning="m"))
    blank = Result(id="s99", title="Tides", headline="worst", definition="", declared=declared)
    return replace(blank, rows=rows, **changed)


def _row(partition: int, worst: int | None, *, coverage: float = 1.0) -> dict[str, Any]:
    return {"topic": "t", "partition": partition, "worst": worst, "mean": None, "coverage": coverage}


def _content(rows: list[dict[str, Any]], **changed: Any) -> Content:
    return stat_table(_result(rows, **changed), material()).content


def test_the_worst_rows_come_first() -> None:
    """By the headline, the largest first; of equals the lower partition."""
    rows = [_row(0, 1), _row(2, 9), _row(3, 1)]
    shown = stat_table(_result(rows), material()).rows

    assert [cells[0] for cells in shown] == ["t-2", "t-0", "t-3"]


def test_rows_without_a_figure_are_counted_and_not_shown() -> None:
    """One row of zeros and two of which nothing is known, beside one that has a figure."""
    rows = [_row(0, 1), _row(1, 0), _row(2, None, coverage=0.0), _row(3, None, coverage=0.0)]
    shown = stat_table(_result(rows), material())

    assert [cells[0] for cells in shown.rows] == ["t-0"]
    assert shown.left_out.startswith("1 more row is all zero; nothing is known for 2 more rows. All rows: ")


def test_a_row_whose_headline_is_not_known_is_last() -> None:
    """It has another figure, so it is shown."""
    rows = [_row(0, None) | {"mean": 7}, _row(1, 1)]

    assert [cells[0] for cells in stat_table(_result(rows), material()).rows] == ["t-1", "t-0"]


def test_a_statistic_of_zeros_is_told_from_one_of_which_nothing_is_known() -> None:
    """Zeros need a time that was known; a figure above zero, and a failure, are shown."""
    assert _content([_row(0, 0), _row(1, None)]) is Content.ZEROS
    assert _content([]) is Content.ZEROS
    assert _content([_row(0, None, coverage=0.0)]) is Content.NOTHING_KNOWN
    assert _content([_row(0, 0), _row(1, 2)]) is Content.FIGURES
    assert _content([], trouble="not computed") is Content.FIGURES


def test_statistics_of_zeros_stand_behind_one_line() -> None:
    """One closed line names them; their tables, and the anchors that definitions lead to, are inside."""
    two = {"s98": replace(_result([_row(0, 0)]), id="s98", title="Ebb"), "s99": _result([_row(0, 0)])}
    reported = material()
    html = render(replace(reported, results={**reported.results, **two}))
    folded = re.search(r'<details class="folded" id="stats-zeros">.*?</details>', html, re.DOTALL)

    assert folded
    assert " open" not in folded[0].partition(">")[0]
    assert "All figures are zero of 2 statistics: S98 Ebb, S99 Tides" in folded[0]
    assert all(f'id="stat-{name}"' in folded[0] for name in two)
    assert html.count('id="stat-s99"') == 1
    assert 'id="stat-s07"' not in folded[0]


def test_a_page_without_such_statistics_has_no_such_line() -> None:
    """Where every statistic has figures, nothing is folded."""
    reported: Material = material()

    assert 'class="folded"' not in render(replace(reported, results={"s07": reported.results["s07"]}))


def test_a_picture_ends_before_the_next_incident() -> None:
    """The failover is over at 5 s, and an operator moves the leader at 5.3 s: the picture of the first stops there."""
    moved = event("LEADER_CHANGE", 5_300, partition_epoch=3, leader_epoch=2, old_leader=2, new_leader=1,
                  new_leader_epoch=2, reason="preferred", election_type="preferred")  # fmt: skip
    reported = material(events=[*failover(), moved])
    found = incidents_of(reported)

    assert [incident.is_planned for incident in found] == [False, True]
    assert scenes(found[0], found, reported)[0].t1 == moved.t_us - 1_000


# The page of an export that has states and no changes, as a collector of Kafka's makes it.


def states(*, stalls: bool = False, under_replicated_us: int = 0) -> Material:
    """Nothing is recorded of changes: those figures are null in each row."""
    found = material(
        events=[], stalls=(stall(1_000, 3_000),) if stalls else (), under_replicated_us=under_replicated_us
    )
    blank: dict[str, Any] = {}
    for name in ("s07", "s08"):
        result = found.results[name]
        rows = [{**row, **dict.fromkeys((each.name for each in result.declared), None)} for row in result.rows]
        blank[name] = replace(result, rows=rows)
    return replace(found, results={**found.results, **blank})


def test_figures_of_changes_are_null_and_never_0() -> None:
    """What a collector cannot see is no count, in the figures for programs too."""
    found = states()
    figures = data(found, incidents_of(found))

    unseen = ("elections", "shrinks", "expands", "truncated_records", "committed_cut_records", "committed_lost_records")
    assert {name: figures[name] for name in unseen} == dict.fromkeys(unseen)
    facts = {fact.name: fact.shown for fact in page(found)["facts"]}
    shown = ("elections", "ISR shrinks", "ISR expands", "records cut from logs", "committed records lost")
    assert {name: facts[name] for name in shown} == dict.fromkeys(shown, "–")


def test_a_stall_is_no_proof_that_nothing_was_lost() -> None:
    """Elections between two looks are not seen, so the title does not say what they lost."""
    found = states(stalls=True)

    assert verdict(found, incidents_of(found), 1.0).headline.startswith(
        "No loss of committed records is known; 1 incident"
    )


@pytest.mark.parametrize(
    ("under_us", "headline"),
    [
        (0, "No trouble was seen; what happened between two looks is not recorded"),
        (2_000_000, "In trouble: t-0, up to 2 s of it"),
    ],
)
def test_a_window_without_incidents_is_not_called_calm(under_us: int, headline: str) -> None:
    """Nothing says that nothing happened, nor that trouble is older than the window."""
    found = states(under_replicated_us=under_us)

    assert (verdict(found, [], 1.0).headline, verdict(found, [], 1.0).tone) == (headline, "warn")
