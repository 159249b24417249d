"""Pages as HTML: all foreign text is escaped, every page is complete without scripts, styles are the project's."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from reported_cluster import NOW_MS, held, led, node, partition, picture, topic_of, tp

import strandline.console
from strandline.console.pages import Form, Page, Site, write_page, write_part
from strandline.console.picture import ControllerLook, LedPartition, NodeLook, Picture
from strandline.console.seen import see
from strandline.console.settings import ConsoleSettings
from strandline.console.watching import Watching
from strandline.core.messages import Endpoint
from strandline.core.types import Offset
from strandline.rpc.convert.describe import ControllerDescribed

_CONSOLE = Path(strandline.console.__file__).parent
_REPORT_STYLE = Path(__file__).parents[2] / "analytics/strandline_analytics/report/templates/style.css"
_EVIL = "<img src=x onerror=alert(1)>\"'&"
_PATHS = ["/", "/partitions", "/partitions/tides/0", "/nodes", "/topics", "/groups", "/nowhere", "/partitions/tides/99"]


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
    )  # fmt: skip


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
