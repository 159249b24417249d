"""A report on given material: incidents, pictures, verdict, and that the page needs nothing else."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

from reported_material import BEGIN_US, event, failover, material, samples, stall, unclean

from strandline_analytics.report.drawing import NARROW, above_hw, draw_lanes
from strandline_analytics.report.material import incidents_of
from strandline_analytics.report.page import page, render
from strandline_analytics.report.pictures import BelievedValue, Picture, picture
from strandline_analytics.report.verdict import Verdict, verdict


def _ms(t_us: int) -> float:
    return (t_us - BEGIN_US) / 1000


def _picture() -> Picture:
    reported = failover()
    own = [e for e in (*reported, *samples()) if e.partition is not None]
    nodes = [e for e in reported if e.partition is None]
    return picture("t-0", own, nodes, BEGIN_US, BEGIN_US + 10_000_000)


def test_a_failover_is_one_incident_with_its_cut_and_its_recovery() -> None:
    """Shrink and election of one decision belong together; creation is not an incident; recovery is the last return."""
    (incident,) = incidents_of(material())

    assert len(incident.shrinks) == 1
    assert len(incident.elections) == 1
    assert incident.cut_records == 2
    assert incident.committed_cut == 0
    assert incident.recovered_us is not None
    assert _ms(incident.recovered_us) == 5_000
    assert not incident.is_planned


def test_a_planned_change_beside_a_failure_is_an_incident_of_its_own() -> None:
    """Half a second after node 1 was fenced an operator elects a preferred leader: one fault, one planned change."""
    moved = event("LEADER_CHANGE", 2_500, partition=1, partition_epoch=7, leader_epoch=3, old_leader=3, new_leader=2,
                  new_leader_epoch=3, reason="preferred", election_type="preferred")  # fmt: skip
    found = incidents_of(material(events=[*failover(), moved]))

    assert [(i.is_planned, len(i.shrinks), len(i.elections)) for i in found] == [(False, 1, 1), (True, 0, 1)]


def test_an_outage_and_the_election_that_ends_it_are_one_incident() -> None:
    """30 s without a leader, then an unclean election, then the ISR whole again: one incident over all of it."""
    everybody = [1, 2, 3]
    reported = [
        *failover()[:3],
        event("ISR_CHANGE", 2_000, partition_epoch=1, leader_epoch=0, old_isr=everybody, new_isr=[1], cause="lag_slow",
              initiator="leader"),
        event("LEADER_CHANGE", 3_000, partition_epoch=2, leader_epoch=1, old_leader=1, new_leader=-1,
              old_leader_epoch=0, new_leader_epoch=1, reason="node_fenced"),
        event("ISR_CHANGE", 33_000, partition_epoch=3, leader_epoch=2, old_isr=[1], new_isr=[2],
              cause="unclean_election", initiator="controller"),
        event("LEADER_CHANGE", 33_000, partition_epoch=3, leader_epoch=2, old_leader=-1, new_leader=2,
              old_leader_epoch=1, new_leader_epoch=2, reason="unclean_election", election_type="unclean"),
        event("ISR_CHANGE", 63_000, partition_epoch=4, leader_epoch=2, old_isr=[2], new_isr=everybody,
              cause="catch_up", initiator="leader"),
    ]  # fmt: skip
    (incident,) = incidents_of(replace(material(events=reported), end_us=BEGIN_US + 90_000_000))

    assert incident.is_unclean
    assert incident.recovered_us is not None
    assert (_ms(incident.began_us), _ms(incident.recovered_us)) == (2_000, 63_000)


def test_a_stall_joins_the_incident_it_overlaps_or_stands_alone() -> None:
    """Each stall is in exactly one incident, at any position."""
    with_both = incidents_of(material(stalls=(stall(2_100, 3_500),)))
    apart = incidents_of(replace(material(stalls=(stall(60_000, 63_000),)), end_us=BEGIN_US + 90_000_000))

    assert [len(incident.stalls) for incident in with_both] == [1]
    assert [len(incident.stalls) for incident in apart] == [0, 1]


def test_an_isr_that_is_not_whole_again_is_reported() -> None:
    """Without the return the incident is open, and the verdict reports it."""
    reported = material(events=[e for e in failover() if e.cause != "catch_up"])
    (incident,) = incidents_of(reported)

    assert incident.recovered_us is None
    assert "not over" in verdict(reported, [incident], 1.0).sentence


def test_lanes_tell_down_from_joining_from_member() -> None:
    """Down until unfenced, joining until admitted; the others are members all along."""
    first, second, third = _picture().lanes

    assert [(_ms(s.t0), _ms(s.t1), s.state) for s in first.spans] == [
        (0, 2_000, "member"),
        (2_000, 4_000, "down"),
        (4_000, 5_000, "joining"),
        (5_000, 10_000, "member"),
    ]
    assert [(_ms(a), _ms(b)) for a, b in first.led] == [(0, 2_000)]
    assert [(_ms(a), _ms(b)) for a, b in second.led] == [(2_000, 10_000)]
    assert {s.state for s in third.spans} == {"member"}


def test_a_fenced_node_is_down_though_it_is_a_member_and_leads() -> None:
    """The last member stays in the ISR and leader by name; its lane shows from the fence on that it is down."""
    reported = [
        *failover()[:3],
        event("NODE_SESSION", 2_000, plane="node", subject_node_id=1, phase="fence", cause="session_timeout"),
        event("NODE_SESSION", 4_000, plane="node", subject_node_id=1, phase="unfence", cause="heartbeat"),
    ]
    own = [e for e in reported if e.partition is not None]
    first = picture("t-0", own, reported[3:], BEGIN_US, BEGIN_US + 10_000_000).lanes[0]

    assert [(s.state, _ms(s.t0), _ms(s.t1)) for s in first.spans] == [
        ("member", 0, 2_000),
        ("down", 2_000, 4_000),
        ("member", 4_000, 10_000),
    ]
    assert [(_ms(a), _ms(b)) for a, b in first.led] == [(0, 2_000), (4_000, 10_000)]


def test_a_look_without_a_high_watermark_is_a_curve_of_the_leo_alone() -> None:
    """Of another system a look may know where logs end and no HW: that time is known, and no HW is drawn."""
    own = [replace(e, fields={k: v for k, v in e.fields.items() if k != "hw"}) for e in samples()[:2]]
    shown = picture("t-0", own, [], BEGIN_US, BEGIN_US + 10_000_000)

    assert [(_ms(s.t0), s.value) for s in shown.leader_leo][:2] == [(1_000, 8), (1_500, 10)]
    assert shown.hw == ()
    assert _ms(shown.unknown[0][1]) == 1_000
    assert "curve hw" not in {shape.css for shape in draw_lanes(shown).shapes}


def test_a_look_is_believed_for_three_intervals_within_its_term() -> None:
    """Curves end with the term or after three intervals; the rest is unknown, and a zombie's sample is no curve."""
    shown = _picture()

    assert [(_ms(s.t0), _ms(s.t1), s.value) for s in shown.hw if s.t0 < BEGIN_US + 2_000_000] == [
        (1_000, 1_500, 8),
        (1_500, 2_000, 8),
    ]
    assert [(_ms(a), _ms(b)) for a, b in shown.unknown] == [
        (0, 1_000),
        (2_000, 2_020),
        (4_100, 5_200),
        (6_700, 10_000),
    ]
    assert [(_ms(t), leo) for t, leo in shown.zombies] == [(2_100, 12)]


def test_the_log_is_at_least_as_long_as_its_high_watermark() -> None:
    """An HW reported between two samples lifts the LEO with it: nothing negative is above the HW."""
    pieces = above_hw(_picture())

    assert pieces
    assert all(piece.value >= 0 for piece in pieces)
    assert BelievedValue(BEGIN_US + 1_500_000, BEGIN_US + 2_000_000, 2, is_old=True) in pieces


def test_a_value_that_no_later_look_confirmed_is_drawn_pale() -> None:
    """The first leader's last look before the crash, and the HW of 2.6 s, after which the next look was late."""
    shown = _picture()
    old = {(_ms(step.t0), _ms(step.t1), step.value) for step in shown.hw if step.is_old}
    kinds = {shape.css for shape in draw_lanes(shown).shapes}

    assert old == {(1_500, 2_000, 8), (2_600, 4_100, 11), (5_200, 6_700, 20)}
    assert {"curve hw", "curve hw old", "above old"} <= kinds


def test_a_value_is_not_pale_because_the_picture_ends() -> None:
    """At 5.5 s the look of 5.2 s was not overdue yet."""
    reported = failover()
    own = [e for e in (*reported, *samples()) if e.partition is not None]
    shown = picture("t-0", own, [], BEGIN_US, BEGIN_US + 5_500_000)

    assert [(_ms(step.t0), step.is_old) for step in shown.hw][-1] == (5_200, False)


def test_a_drawing_for_a_phone_is_as_narrow_as_one() -> None:
    """No shape of the narrow drawing lies outside it, and it has every marker."""
    drawing = draw_lanes(_picture(), NARROW)
    circles = [s for s in drawing.shapes if s.kind == "circle" and s.css.startswith("marker")]

    assert drawing.width == NARROW
    assert len(circles) == len(_picture().markers)
    assert all(s.x >= 0 and s.x + s.width <= NARROW for s in drawing.shapes)


def test_before_a_lost_transition_the_state_is_unknown() -> None:
    """A hole in the partition epochs is not filled by a guess."""
    reported = [e for e in failover() if e.partition_epoch != 1]
    shown = picture("t-0", [e for e in reported if e.partition is not None], [], BEGIN_US, BEGIN_US + 10_000_000)

    assert [(s.state, _ms(s.t0), _ms(s.t1)) for s in shown.lanes[0].spans] == [
        ("unknown", 0, 5_000),
        ("member", 5_000, 10_000),
    ]


def test_a_type_that_is_not_known_ends_what_a_lane_knows() -> None:
    """A newer version's change at 3 s: known until then, unknown until the next known ISR; a remark has no effect."""
    remark = event("TIDE_NOTED", 2_500, plane="data", partition_epoch=1)
    change = event("TIDE_TURNED", 3_000, plane="data", partition_epoch=2)
    later = [replace(e, partition_epoch=3) if e.cause == "catch_up" else e for e in failover()]
    reported = [
        *(e for e in later if e.t_us <= remark.t_us),
        remark,
        change,
        *(e for e in later if e.t_us > change.t_us),
    ]
    shown = picture("t-0", [e for e in reported if e.partition is not None], [], BEGIN_US, BEGIN_US + 10_000_000)

    assert [(s.state, _ms(s.t0), _ms(s.t1)) for s in shown.lanes[1].spans] == [
        ("member", 0, 3_000),
        ("unknown", 3_000, 5_000),
        ("member", 5_000, 10_000),
    ]


def test_a_type_that_is_not_known_at_the_end_leaves_the_rest_unknown() -> None:
    """A change of an unknown type at the end leaves the state after it unknown."""
    change = event("TIDE_TURNED", 3_000, plane="data", partition_epoch=2)
    reported = [*(e for e in failover() if e.t_us < change.t_us and e.partition is not None), change]
    shown = picture("t-0", reported, [], BEGIN_US, BEGIN_US + 10_000_000)

    assert [(s.state, _ms(s.t0), _ms(s.t1)) for s in shown.lanes[1].spans] == [
        ("member", 0, 3_000),
        ("unknown", 3_000, 10_000),
    ]


def test_markers_stand_in_logical_order_and_do_not_cover_each_other() -> None:
    """Every decision, epoch start, truncation and session once; rows are added where they would overlap."""
    shown = _picture()
    circles = [s for s in draw_lanes(shown).shapes if s.kind == "circle" and s.css.startswith("marker")]

    assert [m.kind for m in shown.markers] == [
        "LEADER_CHANGE",
        "NODE_SESSION",
        "ISR_CHANGE",
        "LEADER_CHANGE",
        "EPOCH_START",
        "NODE_SESSION",
        "TRUNCATION",
        "ISR_CHANGE",
    ]
    assert [m.number for m in shown.markers] == list(range(1, len(shown.markers) + 1))
    assert [m.t_us for m in shown.markers] == sorted(m.t_us for m in shown.markers)
    assert len(circles) == len(shown.markers)
    for number, one in enumerate(circles):
        for other in circles[number + 1 :]:
            assert abs(one.x - other.x) >= 16 or abs(one.y - other.y) >= 16


def test_the_verdict_names_loss_before_everything_else() -> None:
    """Lost committed records are the first words of the page."""
    reported = material(lost=3)
    said = verdict(reported, incidents_of(reported), 1.0)

    assert said.tone == "bad"
    assert said.sentence.startswith("Committed records were lost: 3")


def test_losses_are_counted_once_and_not_by_copies() -> None:
    """80 records truncated from copies and 65 that the new leader lacked: 65 were lost."""
    reported = material(lost=65, cut_below_hw=80)

    assert verdict(reported, incidents_of(reported), 1.0).sentence.startswith("Committed records were lost: 65")


def test_records_cut_from_copies_alone_are_no_loss() -> None:
    """Where every new leader had them, the verdict names the copies they were truncated from."""
    reported = material(lost=0, cut_below_hw=2)
    said = verdict(reported, incidents_of(reported), 1.0)

    assert said.sentence.startswith("Nothing committed was lost")
    assert "2 committed records cut from copies" in said.sentence


def test_an_unclean_election_of_which_nothing_is_known_is_no_calm() -> None:
    """Without a sample of the epoch before, verdict and tile say that the loss is not known, and of whom it is."""
    reported = material(events=unclean(), lost=None)
    said = verdict(reported, incidents_of(reported), 1.0)
    page = render(reported)

    assert said == Verdict(
        "Unclean election of t-0: how many committed records it lost is not known; "
        "1 incident: node 1 (node fenced, down 18:08:32.000 to 18:08:34.000)",
        "bad",
        ("1 cut by a replica that did not know its own HW (2 records)",),
    )
    assert "Nothing committed was lost" not in page
    assert "not known" in page


def test_a_known_loss_beside_an_unknown_one_is_said_to_be_a_lower_bound() -> None:
    """20 are known to be lost, and of one epoch it is not known: at least 20, in verdict, tile and data."""
    reported = material(events=unclean(), lost=20, epochs_unknown=1)
    shown = page(reported)

    assert shown["verdict"].sentence.startswith("Committed records were lost: at least 20, in 1 incident")
    assert "how many more in t-0 is not known" in shown["verdict"].sentence
    assert {fact.name: fact.shown for fact in shown["facts"]}["committed records lost"] == "at least 20"
    assert (shown["data"]["committed_lost_records"], shown["data"]["epochs_unknown"]) == (20, 1)


def test_a_loss_that_is_not_known_is_null_for_programs() -> None:
    """A loss that is not known is null in the data, never 0, as in the statistic."""
    shown = page(material(events=unclean(), lost=None))

    assert (shown["data"]["committed_lost_records"], shown["data"]["epochs_unknown"]) == (None, 1)
    assert (shown["data"]["committed_cut_records"], shown["data"]["own_hw_unknown"]) == (None, 1)


def test_what_a_replica_cut_without_its_hw_is_not_called_uncommitted() -> None:
    """It is unknown whether these 2 records were committed."""
    reported = material(events=unclean(), lost=0)

    assert "uncommitted" not in verdict(reported, incidents_of(reported), 1.0).sentence


def test_a_clean_failover_without_looks_does_not_claim_that_nothing_was_lost() -> None:
    """A missing measurement is not shown as a value."""
    reported = material(lost=None)

    assert verdict(reported, incidents_of(reported), 1.0).sentence.startswith("No loss of committed records is known")


def test_a_cut_without_a_known_hw_is_reported_as_such() -> None:
    """A replica that did not know its own HW reports nothing about committed records."""
    reported = material(events=unclean(), lost=0)
    incident = incidents_of(reported)[0]

    assert incident.blind_cuts == 1
    assert "1 cut by a replica that did not know its own HW" in verdict(reported, [incident], 1.0).sentence
    assert "own HW not known" in render(reported)


def test_a_window_that_begins_in_trouble_is_not_calm() -> None:
    """Without an incident of its own, the trouble that was open when the window began is named."""
    reported = material(events=failover()[:3], under_replicated_us=10_000_000)
    said = verdict(reported, [], 1.0)

    assert said.tone == "warn"
    assert "In trouble since before the window: t-0" in said.sentence


def test_calm_is_not_claimed_of_what_is_not_known() -> None:
    """Without incidents and with gaps in the export the verdict covers only what is known."""
    calm = material(events=failover()[:3])

    assert verdict(calm, [], 1.0).tone == "good"
    assert "(50 % of the time is known)" in verdict(calm, [], 0.5).sentence


class _Seen(HTMLParser):
    """Collects ids, references within the page, and everything that would be loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.led_to: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(attrs)
        if said.get("id"):
            self.ids.append(str(said["id"]))
        href = said.get("href") or ""
        if tag == "a" and href.startswith("#"):
            self.targets.append(href[1:])
        elif tag == "a" and href:
            self.led_to.append(href)
        elif (href and not href.startswith("data:")) or "src" in said:
            self.loaded.append(f"{tag} {href}{said.get('src') or ''}")


def test_the_page_is_complete_in_itself() -> None:
    """No external address is loaded, every link within the page has its target, and no id occurs twice."""
    html = render(material(stalls=(stall(2_100, 3_500),)))
    seen = _Seen()
    seen.feed(html)

    assert seen.loaded == []
    assert {href.partition("#")[0] for href in seen.led_to} == {"docs/OPERATIONS.md"}
    assert not re.search(r"https?://", html.replace("http://www.w3.org/", ""))
    assert "@import" not in html
    assert set(seen.targets) <= set(seen.ids)
    assert len(seen.ids) == len(set(seen.ids))


def test_names_of_users_are_text_and_never_markup() -> None:
    """Names of users may hold any text, and are never interpreted as markup."""
    sly = [replace(e, topic="<b>&t") if e.topic else e for e in failover()]
    html = render(replace(material(events=sly), samples=[]))

    assert "<b>&t" not in html
    assert "&lt;b&gt;&amp;t-0" in html


def test_the_figures_for_programs_are_those_of_the_page() -> None:
    """Counts of incidents, elections, shrinks and truncated records as the page shows them."""
    shown = page(material())

    assert shown["data"]["incidents"] == len(shown["incidents"]) == 1
    assert shown["data"]["elections"] == 1
    assert (shown["data"]["shrinks"], shown["data"]["expands"]) == (1, 1)
    assert shown["data"]["truncated_records"] == 2
    facts = {fact.name: fact.shown for fact in shown["facts"]}
    assert facts["records cut from logs"] == "2"


def test_a_leader_change_alone_is_an_incident() -> None:
    """An election without a shrink is shown too, and a preferred one counts as planned."""
    later = event("LEADER_CHANGE", 9_000, partition_epoch=3, leader_epoch=2, old_leader=2, new_leader=1,
                  new_leader_epoch=2, reason="preferred", election_type="preferred")  # fmt: skip
    reported = replace(material(events=[*failover(), later]), end_us=BEGIN_US + 20_000_000)
    found = incidents_of(reported)

    assert [incident.is_planned for incident in found] == [False, True]
