"""Pages of the console: escaped text, the table of partitions, pages of groups."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
from http_calls import ask
from reported_cluster import NOW_MS, held, led, node, partition, picture, topic_of, tp
from running_console import console_here
from tests.client.fake_cluster import TOPIC, fake_cluster, write

import strandline.console
from strandline.client import DescribedGroup, DescribedMember, TopicPartition
from strandline.client.cluster.metadata import Cluster
from strandline.console.groups import MOST_ROWS, GroupRow, group_rows
from strandline.console.overview import partition_rows
from strandline.console.pages import PAGE_ROWS, Form, Page, Query, Site, read_query, table_page, write_page, write_part
from strandline.console.picture import AuditLook, ControllerLook, GroupLook, HeldGroup, LedPartition, NodeLook, Picture
from strandline.console.seen import see
from strandline.console.settings import ConsoleSettings
from strandline.console.watching import Watching
from strandline.core.errors import ErrorCode, Refused
from strandline.core.messages import Endpoint
from strandline.core.types import NodeId, Offset
from strandline.rpc.convert.describe import ControllerDescribed
from strandline.v1.state_event_pb2 import StateEvent

_CONSOLE = Path(strandline.console.__file__).parent
_REPORT_STYLE = Path(__file__).parents[2] / "analytics/strandline_analytics/report/templates/style.css"
_EVIL = "<img src=x onerror=alert(1)>\"'&"
_PATHS = [
    "/", "/partitions", "/partitions/tides/0", "/nodes", "/topics", "/moves", "/groups", "/audit", "/nowhere",
    "/partitions/tides/99",
]  # fmt: skip


def _site(**changed: Any) -> Site:
    watching = Watching(ConsoleSettings(bootstrap=("127.0.0.1:1",)), lambda: None, clock=lambda: NOW_MS)
    return Site(watching, **({"report": "", "allow_changes": False} | changed))


def _page(shown: Picture, path: str, query: dict[str, str] | None = None, **changed: Any) -> Page:
    form = changed.pop("form", None)
    return _site(**changed).page(path, query or {}, see(1, shown), form)


def _html(shown: Picture, path: str, query: dict[str, str] | None = None, **changed: Any) -> str:
    return write_page(_page(shown, path, query, **changed))


class _Tags(HTMLParser):
    """Counts elements, and finds those that are never closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in {"meta", "link", "input", "br"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def _evil_cluster() -> Picture:
    """Every name that a user can choose is a malicious one."""
    look = NodeLook(
        answered_ms=NOW_MS - 9_000, failing_since_ms=NOW_MS - 9_000, failure=_EVIL,
        led={tp(0, _EVIL): led({1: 9, 2: 5}, hw=5)},
    )  # fmt: skip
    failed = NodeLook(answered_ms=NOW_MS, held={tp(0, _EVIL): held(1, 1, "failed", _EVIL)})
    topic = topic_of(partition(0, topic=_EVIL, isr=(1, 2)), name=_EVIL, configs={_EVIL: _EVIL})
    nodes = (node(1, rack=_EVIL), node(2, rack=_EVIL), node(3, rack=_EVIL))
    return picture(
        topic, nodes=nodes, looks={1: look, 3: failed}, bootstrap=_EVIL,
        controller=ControllerLook(heard_ms=NOW_MS, failing_since_ms=NOW_MS, failure=_EVIL),
        audits={_EVIL: _audit(_EVIL), "node 1": AuditLook(failure=_EVIL)},
    )  # fmt: skip


def _audit(name: str, wall_us: int = 0, outcome: str = "ALLOWED", **said: Any) -> AuditLook:
    fields = {"principal": name, "peer": name, "method": name, "resource_name": name, "rule": name} | said
    fields = {"before": {name: name}, "after": {name: name}} | fields
    return AuditLook([StateEvent(ts_wall_us=wall_us, outcome=outcome, **fields)])


@pytest.mark.parametrize("path", [*_PATHS, f"/partitions/{_EVIL}/0"])
async def test_names_and_sentences_of_others_are_escaped(path: str) -> None:
    """Topic names, racks, settings, failures, the address itself: none of it becomes an element or an attribute."""
    trouble = dict.fromkeys(("code", "field", "sentence", "rule", "remedy"), _EVIL)
    form = Form({"name": _EVIL, "configs": _EVIL}, trouble=trouble)
    query = {"q": _EVIL, "topic": _EVIL, "created": _EVIL, "node": _EVIL}
    page = _page(_evil_cluster(), path, query, report="https://x/?" + _EVIL, allow_changes=True, form=form)
    tags = [_Tags(html) for html in (write_page(page), *(write_part(page, part) for part in page.parts))]

    assert [tag for each in tags for tag, _ in each.seen if tag == "img"] == []
    assert [name for each in tags for _, attributes in each.seen for name in attributes if name.startswith("on")] == []


async def test_the_page_of_an_evil_topic_shows_its_name() -> None:
    """Escaping does not remove anything: users see the name unchanged."""
    html = _html(_evil_cluster(), f"/partitions/{_EVIL}/0")

    assert "&lt;img src=x onerror=alert(1)&gt;" in html


@pytest.mark.parametrize("path", _PATHS)
@pytest.mark.parametrize("known", [True, False], ids=["known", "nothing known"])
async def test_every_page_is_whole(path: str, known: bool) -> None:
    """Elements are closed, ids are unique, nothing is styled or scripted inline (the policy would block it)."""
    looks = {1: NodeLook(answered_ms=NOW_MS, led={tp(0): led({1: 900, 2: 880, 3: None}, hw=880)})}
    shown = picture(topic_of(partition(0, isr=(1, 2)), partition(1, isr=(), leader=None)), looks=looks)
    tags = _Tags(_html(shown if known else Picture(now_ms=NOW_MS), path, report="/report.html"))

    ids = [attributes["id"] for _, attributes in tags.seen if "id" in attributes]
    assert tags.open == []
    assert len(ids) == len(set(ids))
    assert [
        attributes for _, attributes in tags.seen if any(n == "style" or n.startswith("on") for n in attributes)
    ] == []
    assert [tag for tag, _ in tags.seen if tag == "style"] == []


async def test_a_partition_shows_where_readers_of_committed_records_stand() -> None:
    """The LSO, how far it is behind, and whose transaction holds it; a leader of an earlier release has none."""
    early = led({1: 900, 2: 900}, hw=900)
    calm, waits = early._replace(lso=Offset(900)), early._replace(lso=Offset(870), open_producer_id=4711)

    def shown(one: LedPartition) -> str:
        looks = {1: NodeLook(answered_ms=NOW_MS, led={tp(0): one})}
        return _html(picture(topic_of(partition(0, isr=(1, 2))), looks=looks), "/partitions/tides/0")

    assert "<dt>LSO</dt>" not in shown(early)
    assert "<dt>LSO</dt><dd>900</dd>" in shown(calm)
    assert "<dt>LSO</dt><dd>870 " in shown(waits)
    assert "held by producer 4711" in shown(waits)
    assert ">-30<" in shown(waits)


async def test_the_audit_of_all_processes_is_one_table() -> None:
    """The newest first, with who, what, and from which value to which; a process that may not be asked is named."""
    refused = _audit("client/x", 2_000_000, "REFUSED", n_coalesced=40, before={}, after={}, rule=None)
    changed = _audit("client/ops", 1_000_000, before={"min.insync.replicas": "2"}, after={"min.insync.replicas": "1"})
    audits = {"controller": changed, "node 1": refused, "node 2": AuditLook(failure="may not DESCRIBE the cluster")}
    html = _html(picture(topic_of(partition(0)), audits=audits), "/audit")

    assert html.index("client/x") < html.index("client/ops")
    assert "40 times" in html
    assert "no rule allows it" in html
    assert "min.insync.replicas 2 → 1" in html
    assert "Nothing from node 2: may not DESCRIBE the cluster" in html


async def test_a_healthy_landing_page_says_so_with_the_age_of_its_data() -> None:
    """Nothing is wrong, as of when, and no finding below it."""
    html = _html(picture(topic_of(partition(0))), "/")

    assert "Nothing is wrong." in html
    assert "Data 0.2 s old." in html
    assert 'class="finding' not in html


async def test_the_form_is_there_only_where_changes_are_allowed() -> None:
    """Without --allow-changes no page has a form that posts."""
    shown = picture(topic_of(partition(0)))

    assert all('method="post"' not in _html(shown, path) for path in _PATHS)
    assert 'method="post"' in _html(shown, "/topics", allow_changes=True)


async def test_a_form_is_never_replaced_while_somebody_types() -> None:
    """No live part contains an input field, so that a form is never replaced while a user types."""
    page = _page(picture(topic_of(partition(0))), "/topics", allow_changes=True)

    assert all("<form" not in write_part(page, part) for part in page.parts if part.live)


def test_the_house_has_one_palette() -> None:
    """Console and report name the same colours by the same names, in light and in dark."""
    palettes = [
        re.findall(r"--[\w-]+: [^;]+", style.read_text())
        for style in (_CONSOLE / "static" / "console.css", _REPORT_STYLE)
    ]

    assert len(palettes[0]) > 20
    assert palettes[0] == palettes[1]


def test_the_script_is_small_and_asks_only_its_own_server() -> None:
    """The script is one file without a library and without an external address."""
    script = (_CONSOLE / "static" / "console.js").read_text()

    assert len(script.splitlines()) < 150
    assert "http" not in script
    assert "eval(" not in script


def _among(active: str | None) -> Picture:
    """A picture with three controllers, of which one or none decides."""
    described = tuple(
        ControllerDescribed(name, Endpoint("127.0.0.1", 1), Endpoint("127.0.0.1", 1), name == active, 90, lag)
        for name, lag in (("c1", 0), ("c2", 12), ("c3", 3))
    )
    return replace(picture(), controller=ControllerLook(heard_ms=NOW_MS, among=described))


async def test_it_is_shown_which_controller_decides_and_how_far_the_others_are() -> None:
    """The nearest standby comes first; with one controller there is no such line."""
    shown = re.sub(r"<[^>]+>", "", _html(_among("c1"), "/"))

    assert "Controller c1 decides; standby: c3 (3 behind), c2 (12 behind)." in shown
    assert "No controller decides" in _html(_among(None), "/")
    assert 'id="controllers"' not in _html(picture(), "/")


_ROWS = partition_rows(
    picture(
        topic_of(partition(0), partition(1, isr=(1, 2)), partition(2, isr=(1,)), partition(3, isr=(2,), leader=None)),
        topic_of(partition(0, topic="logs", leader=2, replicas=(1, 2), isr=(1, 2)), name="logs"),
        looks={1: NodeLook(answered_ms=NOW_MS, led={tp(0): led({1: 90, 2: 20, 3: 90}, hw=20)})},
    )
)


def _names(**query: str) -> list[str]:
    return [row.name for row in table_page(_ROWS, read_query(query)).rows]


def test_the_worst_comes_first() -> None:
    """Offline, under min ISR, at min ISR, then those only without their preferred leader, then the healthy ones."""
    assert _names() == ["tides-3", "tides-2", "tides-1", "logs-0", "tides-0"]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"show": "out-of-sync"}, ["tides-3", "tides-2", "tides-1"]),
        ({"show": "offline"}, ["tides-3"]),
        ({"show": "under-min"}, ["tides-3", "tides-2"]),
        ({"show": "at-min"}, ["tides-1"]),
        ({"show": "not-preferred"}, ["logs-0"]),
        ({"show": "trouble"}, ["tides-3", "tides-2", "tides-1"]),
        ({"topic": "logs"}, ["logs-0"]),
        ({"node": "3", "sort": "name"}, ["tides-0", "tides-1", "tides-2", "tides-3"]),
        ({"q": "IDES-1"}, ["tides-1"]),
        ({"sort": "lag"}, ["tides-0", "logs-0", "tides-1", "tides-2", "tides-3"]),
    ],
)
def test_filters_and_orders(query: dict[str, str], names: list[str]) -> None:
    """Each filter shows what its name says, and each order sorts by it."""
    assert _names(**query) == names


@pytest.mark.parametrize("query", [{"page": "-1"}, {"page": "9" * 40}, {"show": "x"}, {"sort": "'"}, {"node": "٣"}])
def test_a_query_without_sense_shows_everything(query: dict[str, str]) -> None:
    """A page is returned for any query in the address."""
    assert len(_names(**query)) == 5


def test_a_page_is_bounded() -> None:
    """Five thousand partitions are a hundred pages, and the page after the last is the last."""
    rows = partition_rows(picture(topic_of(*(partition(index) for index in range(5_000)))))
    page = table_page(rows, Query(page=1_000_000, sort="name"))

    assert (len(page.rows), page.found, page.pages, page.query.page) == (PAGE_ROWS, 5_000, 100, 100)
    assert page.rows[-1].name == "tides-4999"


def test_an_address_keeps_what_was_asked() -> None:
    """A link to another page changes only the page, and defaults are left out."""
    query = read_query({"q": "a&b", "show": "offline", "page": "2"})

    assert query.url(page=3) == "/partitions?q=a%26b&show=offline&page=3"
    assert query.url(q="", show="all", page=1) == "/partitions"


EVIL = _EVIL + "/x"
ANSWERED_S = 20.0


def member(member_id: str, *partitions: int, **changed: Any) -> DescribedMember:
    """A member that reads partitions of tides and was heard a second before its coordinator answered."""
    assigned = tuple(TopicPartition("tides", index) for index in partitions)
    whole = DescribedMember(
        member_id=member_id,
        instance_id=None,
        rack=None,
        member_epoch=3,
        client_id="app",
        client_host="10.0.0.7",
        topics=("tides",),
        pattern=None,
        assignment=assigned,
        target_assignment=assigned,
        revoking=(),
        state="Stable",
        last_heartbeat_age_ms=1_000,
        last_commit_age_ms=None,
        session_timeout_ms=45_000,
        rebalance_timeout_ms=300_000,
    )
    return replace(whole, **changed)


def held_groups(name: str, *members: DescribedMember, state: str = "Stable", **offsets: int | None) -> HeldGroup:
    """A group that node 2 coordinates; offsets of tides by ``p0``, ``p1`` and so on."""
    committed = {TopicPartition("tides", int(key[1:])): offset for key, offset in offsets.items() if offset is not None}
    return HeldGroup(DescribedGroup(name, state, 3, 3, "uniform", 2, members), committed)


def shown(*groups: HeldGroup, answered_ms: int = NOW_MS - 500, **changed: Any) -> Picture:
    """Three partitions of tides, HW 100 in the first two; the third has no leader."""
    looks = {1: NodeLook(answered_ms=NOW_MS, led={tp(index): led({1: 100}, hw=100) for index in (0, 1)})}
    topic = topic_of(partition(0), partition(1), partition(2, leader=None))
    of_groups = {NodeId(2): GroupLook(answered_ms=answered_ms, groups=groups, **changed)}
    return replace(picture(topic, looks=looks), groups=of_groups)


def rows(of: Picture) -> Mapping[str, GroupRow]:
    """The groups by name, in their order."""
    return {row.name: row for row in group_rows(of, partition_rows(of))}


def words(html: str) -> str:
    """What a reader sees."""
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


async def test_lag_is_what_was_measured_minus_what_is_committed() -> None:
    """Without a high watermark, or without an offset, there is none; a partition behind the HW it knows has lag 0."""
    row = rows(shown(held_groups("g", member("m1", 0, 1), p0=90, p1=120, p2=7)))["g"]
    fresh = rows(shown(held_groups("g", member("m1", 0), p0=None)))["g"]
    found = [(one.partition, one.committed, one.hw, one.lag) for one in row.partitions]

    assert found == [(0, 90, 100, 10), (1, 120, 100, 0), (2, 7, None, None)]
    assert (row.lag, row.unmeasured) == (10, 1)
    assert [(one.lag, one.readers) for one in fresh.partitions] == [(None, ("m1",))]
    assert (fresh.lag, fresh.unmeasured) == (None, 1)


async def test_who_is_waited_for_comes_first() -> None:
    """Members that are to give something up, then those whose heartbeats are late; groups that are not settled."""
    asked = member("z-asked", 0, revoking=(TopicPartition("tides", 1),), state="unrevoked_partitions")
    late = member("y-late", last_heartbeat_age_ms=22_400)
    found = rows(
        shown(
            held_groups("a-stable", member("m"), p0=0),
            held_groups("b-moving", member("m1"), late, asked, state="Reconciling", p0=90, p1=99),
        )
    )
    moving = found["b-moving"]
    values = [(one.partition, one.is_revoking, one.readers) for one in moving.partitions]

    assert list(found) == ["b-moving", "a-stable"]
    assert [row.member.member_id for row in moving.members] == ["z-asked", "y-late", "m1"]
    assert [row.is_late for row in moving.members] == [False, True, False]
    assert moving.members[1].heartbeat_age_ms == 22_900
    assert values == [(0, False, ("z-asked",)), (1, True, ("z-asked",))]
    assert (moving.revoking, moving.members[0].lag) == (1, 11)


async def test_the_coordinator_that_answered_last_is_believed() -> None:
    """A deposed one may go on describing a group that another coordinates by now."""
    of = shown(held_groups("g", member("m1"), p0=90))
    newer = GroupLook(answered_ms=NOW_MS, groups=(held_groups("g", p0=95),))

    row = rows(replace(of, groups={**of.groups, NodeId(1): newer}))["g"]
    assert (row.coordinator, row.lag, row.members) == (1, 5, ())


async def test_the_list_shows_state_members_and_total_lag() -> None:
    """One row for each group, with a link to its page; what a node does not say is said."""
    of = shown(
        held_groups("readers", member("m1", 0, 1), p0=90, p1=80), failure="no answer", left_out=3, lacking="loads"
    )
    html = _html(of, "/groups")

    assert "readers Stable 1 2 30 2 0.5 s" in words(html)
    assert 'href="/groups/readers"' in html
    assert "Node 2 does not say which groups it coordinates: no answer" in words(html)
    assert "Node 2 coordinates 3 more groups than are shown here" in words(html)
    assert "Node 2 does not know all of its groups yet: loads" in words(html)


async def test_the_page_of_a_group_shows_members_and_partitions() -> None:
    """Each partition with its offset, HW, lag and reader; a partition without a member has no reader."""
    asked = member("m1", 0, revoking=(TopicPartition("tides", 1),), instance_id="till-7")
    text = words(
        _html(shown(held_groups("readers", asked, state="Reconciling", p0=90, p1=80, p2=7)), "/groups/readers")
    )

    assert "m1 instance till-7 app 10.0.0.7 Stable e3 1 1 1 30 1.5 s" in text
    assert "tides-1 80 100 20 m1 asked back tides-0 90 100 10 m1 tides-2 7 – – no member" in text


async def test_a_group_that_is_not_known_is_not_found() -> None:
    """A page says so, with its status."""
    text = words(_html(shown(), "/groups/nobody"))

    assert "No node has reported a group nobody." in text


@pytest.mark.parametrize("path", ["/groups", f"/groups/{EVIL}"])
async def test_names_of_groups_and_members_are_escaped(path: str) -> None:
    """A name may be markup, and may have a slash: its page is found, and shows it as it is."""
    evil = member(EVIL, 0, instance_id=EVIL, client_id=EVIL, client_host=EVIL, rack=EVIL, state=EVIL)
    described = DescribedGroup(EVIL, EVIL, 3, 3, EVIL, 2, (evil,))
    committed = {TopicPartition(EVIL, 0): 5, TopicPartition("tides", 0): 5}
    html = _html(shown(HeldGroup(described, committed), failure=EVIL, lacking=EVIL), path)

    assert "<img" not in html
    assert "&lt;img src=x onerror=alert(1)&gt;" in html
    assert "No node has reported" not in html


async def test_a_table_has_a_bounded_number_of_rows() -> None:
    """Of a thousand groups, and of a thousand members, the first are shown, and how many there are."""
    many = shown(*(held_groups(f"g{number}", p0=number % 100) for number in range(1_000)))
    crowded = shown(held_groups("g", *(member(f"m{number}") for number in range(1_000)), p0=1))

    assert _html(many, "/groups").count("<tr>") == MOST_ROWS + 1
    assert f"1,000 groups, the first {MOST_ROWS} of them" in words(_html(many, "/groups"))
    assert _html(crowded, "/groups/g").count("instance") == 0
    assert f"the first {MOST_ROWS} of 1,000" in words(_html(crowded, "/groups/g"))


async def test_groups_are_asked_for_at_their_coordinators() -> None:
    """A console of a cluster lists its group, with what it has committed and the lag from the leader's HW."""
    async with fake_cluster(nodes=2) as cluster:
        write(cluster, b"a", b"b", b"c")
        cluster.groups.committed["read?ers#"] = {(TOPIC, 0): 1}
        async with console_here(cluster.bootstrap) as address, asyncio.timeout(ANSWERED_S):
            text = ""
            while f"{TOPIC}-0 1 " not in text:
                text = words((await ask(address, "/groups/read%3Fers%23")).text)
            listed = words((await ask(address, "/groups")).text)

    assert f"{TOPIC}-0 1 3 2 no member" in text
    assert "read?ers# Empty 0 1 2" in listed


async def test_a_refusal_at_the_start_is_shown_and_asked_about_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate that may not watch the cluster yet is no end of the console."""
    refused = Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not yet")
    monkeypatch.setattr(Cluster, "start", AsyncMock(side_effect=[refused, asyncio.CancelledError]))
    settings = ConsoleSettings(bootstrap=("127.0.0.1:1",), look_interval_ms=100)
    watching = Watching(settings, lambda: None, clock=lambda: NOW_MS)
    with pytest.raises(asyncio.CancelledError):
        await watching.run()

    assert "not yet" in watching.picture.controller.failure


# Moves of replicas.


def _moving(**changed: Any) -> Any:
    """A move from 1, 2, 3 to 1, 4, 5, of which 4 has joined."""
    both = {"replicas": (1, 4, 5, 2, 3), "adding": (4, 5), "removing": (2, 3), "original": (1, 2, 3)}
    return partition(**({"isr": (1, 4, 2, 3)} | both | changed))


def _moves_shown(*more: Any, **looks: Any) -> Picture:
    nodes = tuple(node(each) for each in range(1, 6))
    leader = NodeLook(answered_ms=NOW_MS, led={tp(): led({1: 100, 2: 100, 3: 100, 4: 100, 5: 95}, hw=100)})
    return picture(topic_of(_moving(), *more), nodes=nodes, looks={1: leader})


async def test_a_move_is_shown_with_what_is_copied_and_who_is_waited_for() -> None:
    """Of 2 kB that two replicas copy, all but 500 bytes are there; node 5 has still to join."""
    text = words(_html(_moves_shown(partition(1, queued_target=(1, 2, 4))), "/moves"))

    assert "1 move running, 1 queued" in text
    assert "tides-0 running 1,2,3 → 1,4,5 75 %" in text
    assert "tides-1 queued 1,2,3 → 1,2,4 not begun" in text
    assert 'value="75"' in _html(_moves_shown(), "/moves")


async def test_a_move_makes_nothing_wrong() -> None:
    """Replicas that are being added are out of sync nowhere; the landing page notes that a move runs."""
    seen = see(1, _moves_shown())
    text = words(_html(_moves_shown(), "/"))

    assert (seen.tone, seen.figures().out_of_sync) == ("good", 0)
    assert "1 move running, 0 queued" in text
    assert see(1, picture(topic_of(_moving(isr=(1, 4))))).figures().out_of_sync == 2


async def test_without_a_measurement_nothing_is_known_to_be_copied() -> None:
    """A leader that has not answered in its epoch leaves the bar out; without any move the page says so."""
    unmeasured = picture(topic_of(_moving()), nodes=tuple(node(each) for each in range(1, 6)))

    assert "not measured" in words(_html(unmeasured, "/moves"))
    assert "<progress" not in _html(unmeasured, "/moves")
    assert "Nothing is being moved." in words(_html(picture(topic_of(partition())), "/moves"))
