"""The explanation of a cause, and what a report says of events that are still in a spool."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from reported_material import BEGIN_US, event, failover, material, stall, unclean

from strandline_analytics.explain.chain import explain
from strandline_analytics.report.culprits import spooled
from strandline_analytics.report.page import page, render
from strandline_analytics.timeline.causes import MEANINGS, STALLED, UNDER_MIN, meaning
from strandline_analytics.timeline.event import Event
from strandline_analytics.timeline.sentences import sentence

ROOT = Path(__file__).resolve().parents[3]
HEADINGS = re.findall(r"^#+ (.*)$", (ROOT / "docs" / "OPERATIONS.md").read_text(encoding="utf-8"), re.MULTILINE)
CORE = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "services/strandline/core").rglob("*.py"))


def _slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("cause", MEANINGS)
def test_every_next_step_is_written_in_the_operations_page(cause: str) -> None:
    """The link of each cause leads to an existing heading."""
    assert meaning(cause).heading in HEADINGS
    assert meaning(cause).anchor == _slug(meaning(cause).heading)


def test_every_cause_that_the_controller_gives_has_a_meaning() -> None:
    """The causes of a partition change that occur in the core's own code."""
    others = {"observers", "requested", "catch_up", "isr_change"}
    given = set(re.findall(r'\bcause(?:: str)?(?: = |=)"(\w+)"', CORE)) - others

    assert {"refused_cut", "min_isr_change", "election"} <= given <= set(MEANINGS)
    assert {cause for cause in MEANINGS if f'"{cause}"' not in CORE} == {STALLED, UNDER_MIN}


def test_a_cause_of_a_newer_version_is_reported_by_its_name() -> None:
    """An unknown cause gets no invented text, and still has a link."""
    assert meaning("tide_turned").said == "tide turned: a cause that this version does not know"
    assert meaning("tide_turned").heading in HEADINGS


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        ("unclean_recovery_timeout", "the time to wait for the other logs was over"),
        ("refused_cut", "node 2 held committed records that node 1 lacked"),
        ("directory_restored", "node 1's directory is an older copy"),
    ],
)
def test_a_cause_that_is_hard_to_guess_has_its_own_sentence(cause: str, words: str) -> None:
    """A change of leader has its reason in plain words, in a timeline, in the report and in an explanation."""
    change = event("LEADER_CHANGE", 2_000, partition_epoch=1, leader_epoch=1, old_leader=1, new_leader=2,
                   old_leader_epoch=0, new_leader_epoch=1, reason=cause, election_type="reported")  # fmt: skip
    reported = [change if e.event_type == "LEADER_CHANGE" and e.partition_epoch == 1 else e for e in failover()]

    assert words in sentence(change)
    assert words in explain(reported, 1).reported
    assert words in unescape(render(material(events=reported)))


def test_a_node_that_returns_with_an_older_copy_says_so() -> None:
    """A node that returns with an older copy has this reason in its registration and in its removal from the ISR."""
    reported = event(
        "NODE_SESSION", 2_000, plane="node", subject_node_id=1, phase="register", cause="directory_restored"
    )
    gone = event("ISR_CHANGE", 2_000, partition_epoch=1, old_isr=[1, 2], new_isr=[2], cause="directory_restored")

    assert sentence(reported) == "node 1 registers: its directory is an older copy, which forgot what it held"
    assert sentence(gone).endswith("node 1 removed: its directory is an older copy, which forgot what it held")


def test_an_incident_has_a_next_step_for_each_of_its_causes() -> None:
    """The meaning, the next step, and where it is documented."""
    (incident,) = page(material())["incidents"]
    (step,) = incident["steps"]

    assert (step.cause, step.link) == ("node fenced", "docs/OPERATIONS.md#under-replicated")
    assert step.said
    assert step.todo
    assert 'href="docs/OPERATIONS.md#under-replicated"' in render(material())


def test_a_stalled_high_watermark_has_a_next_step_too() -> None:
    """A stalled HW has no cause in the export but a next step, which differs below the minimum ISR."""
    slow = material(events=failover()[:3], stalls=(stall(2_100, 3_500),))
    under = replace(slow, stalls=(replace(stall(2_100, 3_500), is_under_min=True),))

    assert [step.cause for step in page(slow)["incidents"][0]["steps"]] == ["HW stalled"]
    assert [step.link for step in page(under)["incidents"][0]["steps"]] == ["docs/OPERATIONS.md#under-min-isr"]


def test_the_headline_names_the_culprit() -> None:
    """The headline has the node, the reason, and how long it was down."""
    said = page(material())["verdict"].sentence

    assert "1 incident: node 1 (node fenced, down 18:08:32.000 to 18:08:34.000)" in said
    lost = page(material(events=unclean(), lost=3))["verdict"].sentence
    assert "in 1 incident: node 1 (node fenced" in lost


def test_nodes_of_two_clusters_are_not_one_node() -> None:
    """Node 1 of each of two clusters was fenced: neither is the main one."""
    both = [*failover(), *(replace(e, cluster_id="d") for e in failover())]
    said = page(material(events=both))["verdict"].sentence

    assert "2 incidents: node 1 of c, node 1 of d" in said


def test_the_headline_names_who_held_a_high_watermark_up() -> None:
    """Where no replica left and no leader changed, the headline names the node that blocked the HW."""
    slow = material(events=failover()[:3], stalls=(stall(2_100, 3_500),))

    assert "1 incident: node 3 (HW stalled)" in page(slow)["verdict"].sentence


def test_a_failover_is_reported_by_its_phases() -> None:
    """A failover is shown with its longest detection, decision, activation and recovery."""
    (incident,) = page(material())["incidents"]
    facts = {fact.name: fact.shown for fact in incident["facts"]}

    assert facts["detection: last heartbeat to fence"] == "1.5 s"
    assert facts["decision: fence to election"] == "0 µs"
    assert facts["activation: election to epoch start"] == "20 ms"
    assert facts["recovery: ISRs whole again"] == "after 3 s"


def test_an_incident_without_a_failover_has_no_phases_but_its_recovery() -> None:
    """A stall has neither fence nor election, so only its recovery is shown."""
    slow = material(events=failover()[:3], stalls=(stall(2_100, 3_500),))
    names = {fact.name for fact in page(slow)["incidents"][0]["facts"]}

    assert not {name for name in names if name.startswith(("detection", "decision", "activation"))}


def test_the_longest_failover_is_shown_with_its_phases() -> None:
    """Beside the refused writes: 1.5 s from the last heartbeat to the fence, nothing to elect, 20 ms to begin."""
    facts = {fact.name: fact.note for fact in page(material())["facts"]}
    names = list(facts)

    assert facts["failover, longest"] == "1.5 s to notice, 0 µs to elect, 20 ms to begin"
    assert names.index("failover, longest") == names.index("writes refused, longest") + 1


def test_a_shrink_and_an_election_in_one_decision_count_once() -> None:
    """The fence of node 1 was one decision, which removed it from the ISR and gave the partition another leader."""
    (incident,) = page(material())["incidents"]
    facts = {fact.name: fact.shown for fact in incident["facts"]}

    assert facts["cause of its decisions"] == "node fenced (1)"
    assert (facts["shrinks"], facts["elections"]) == ("1", "1")


def test_the_headline_is_what_was_lost_and_who_it_is_about() -> None:
    """Copies that were cut are a detail; the sentence for programs has both."""
    said = page(material())["verdict"]

    assert "uncommitted" not in said.headline
    assert said.details == ("2 uncommitted records cut",)
    assert said.sentence == f"{said.headline}; 2 uncommitted records cut"


def test_a_planned_stop_is_no_downtime_of_an_incident_before_it() -> None:
    """Node 1 is stopped 3 s after it was back: the headline has the failure's downtime alone."""
    stopped = event("NODE_SESSION", 8_000, plane="node", subject_node_id=1, phase="fence", cause="controlled_shutdown")
    said = page(material(events=[*failover(), stopped]))["verdict"].headline

    assert said.endswith("node 1 (node fenced, down 18:08:32.000 to 18:08:34.000)")


def test_a_node_that_was_down_twice_in_an_incident_is_said_to_have_been() -> None:
    """Node 1 was fenced again before it was back in the ISR."""
    again = [
        event("NODE_SESSION", at_ms, plane="node", subject_node_id=1, phase=phase, cause="session_timeout")
        for at_ms, phase in ((4_300, "fence"), (4_600, "unfence"))
    ]
    said = page(material(events=[*failover(), *again]))["verdict"].headline

    assert said.endswith("down 18:08:32.000 to 18:08:34.000, and once more)")


# A report after a crash says whose events are still in the spool of the killed node.


REMEDY = "are still in its spool: start it, or run `strandline export recover DATA_DIR EXPORT`"


def _beat(at_s: float, node: int, incarnation: int = 1, **ext: str) -> Event:
    made = event("EXPORT_HEARTBEAT", at_s * 1_000, plane="node", node=node, last_seq=1)
    return replace(made, incarnation=incarnation, ext=ext)


def _session(at_s: float, node: int, phase: str, heard_s: float | None = None) -> Event:
    heard = {} if heard_s is None else {"last_heartbeat_us": BEGIN_US + round(heard_s * 1_000_000)}
    return event("NODE_SESSION", at_s * 1_000, plane="node", subject_node_id=node, phase=phase, cause="x", **heard)


def _said(*events: Event) -> list[str]:
    return list(spooled(replace(material(events=[*events]), end_us=BEGIN_US + 200_000_000)))


def _killed(*more: Event) -> list[Event]:
    """Node 1, which registered at 1 s, was heard at 99 s and fenced at 100 s; node 2 exports to the end."""
    return [_session(1, 1, "register"), _session(100, 1, "fence", 99), _beat(150, 2), *more]


def test_events_of_a_killed_node_are_said_to_be_in_its_spool() -> None:
    """Since the last that was read, or since it registered where nothing was; in the first lines of the page."""
    assert _said(*_killed(_beat(29, 1))) == [f"node 1's events since 18:08:59.000 {REMEDY}"]
    assert _said(*_killed()) == [f"node 1's events since 18:08:31.000 {REMEDY}"]
    gone = [e for e in failover() if e.get("phase") != "unfence"]
    late = [replace(e, t_us=e.t_us + 60_000_000) for e in gone if e.get("phase") == "fence"]
    heard = [replace(e, fields={**e.fields, "last_heartbeat_us": BEGIN_US + 60_000_000}) for e in late]
    others = [e for e in gone if e.get("phase") != "fence"]
    shown = page(replace(material(events=[*others, *heard, _beat(61, 2)]), end_us=BEGIN_US + 90_000_000))
    assert shown["verdict"].details[0].startswith("node 1's events since 18:08:34.200 are still in its spool")


def test_nothing_is_missing_of_a_node_that_said_all_or_is_back() -> None:
    """An orderly end, a spool that was recovered, a node that runs again, and a node that is removed."""
    assert _said(*_killed(_beat(29, 1, final="true"))) == []
    assert _said(*_killed(_beat(95, 1))) == []
    assert _said(*_killed(_beat(29, 1), _session(120, 1, "unfence"))) == []
    assert _said(*_killed(_beat(29, 1), _session(120, 1, "unregister"))) == []


def test_the_last_process_of_a_node_counts() -> None:
    """The one before ended in order; the one that was killed did not."""
    assert _said(*_killed(_beat(20, 1, 1, final="true"), _beat(50, 1, 2)))[0].startswith(
        "node 1's events since 18:09:20"
    )


def test_a_cluster_whose_nodes_do_not_export_has_no_spool() -> None:
    """Neither one of which only the controller exports, nor an import of Kafka's logs."""
    killed = [e for e in _killed() if e.event_type != "EXPORT_HEARTBEAT"]

    assert _said(*killed) == []
    assert _said(*killed, _beat(20, 1, clock="wall"), _beat(150, 2, clock="wall")) == []
