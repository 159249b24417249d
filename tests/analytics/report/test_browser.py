"""The report in a real browser, Debian's Chromium, headless: light and dark, wide and narrow."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from reported_material import material

from strandline_analytics.report.page import render

_CHROMIUM = shutil.which("chromium")
_PHONE = 390
_READABLE_PX = 10
"""The least height of a line of text in a picture."""
_DEADLINE_S = 100
# Written after the page, not into it: the page itself has no script that runs.
_PROBE = """<script>
const root = document.documentElement, said = JSON.parse(document.getElementById("report-data").textContent);
const seen = {width: root.scrollWidth, inner: innerWidth, ground: getComputedStyle(document.body).backgroundColor,
  ink: getComputedStyle(document.body).color, rows: document.querySelectorAll(".incident-row").length,
  articles: document.querySelectorAll("article.incident").length, reported: said.incidents,
  reached: [...document.querySelectorAll(".scroll")].every(e => e.tabIndex === 0 && e.getAttribute("aria-label")),
  sideways: [...document.querySelectorAll("*")].filter(e => e.scrollWidth > e.clientWidth + 1 && e.clientWidth
    && getComputedStyle(e).overflowX === "auto").length,
  svgs: [...document.querySelectorAll("svg.lanes")].map(e => e.getBoundingClientRect()).filter(r => r.height),
  figures: document.querySelectorAll("figure").length,
  text: Math.min(...[...document.querySelectorAll("svg.lanes text")].map(e => e.getBoundingClientRect().height)
    .filter(height => height))};
parent.postMessage(JSON.stringify(seen), "*");
</script>"""
_FRAME = """<!doctype html><title>frame</title><iframe src="page.html" width="{width}" height="800"></iframe>
<script>
onmessage = e => {{ document.body.append(Object.assign(document.createElement("pre"), {{textContent: e.data}})) }}
</script>"""

pytestmark = [
    pytest.mark.skipif(_CHROMIUM is None, reason="chromium is not installed (Debian: apt-get install chromium)"),
    # A browser starts slowly on a loaded machine.
    pytest.mark.timeout(240),
]


def _seen(folder: Path, *, width: int, dark: bool) -> tuple[dict[str, object], list[str]]:
    """The page's own measurements in a frame of this many pixels, and the console messages."""
    (folder / "page.html").write_text(render(material()) + _PROBE, encoding="utf-8")
    (folder / "frame.html").write_text(_FRAME.format(width=width), encoding="utf-8")
    scheme = ["--blink-settings=preferredColorScheme=0"] if dark else []
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--virtual-time-budget=5000"]
    done = subprocess.run(
        [str(_CHROMIUM), *flags, *scheme, f"--user-data-dir={folder / 'profile'}", "--window-size=1300,900",
         "--dump-dom", (folder / "frame.html").as_uri()],
        capture_output=True, text=True, timeout=_DEADLINE_S, check=True,
    )  # fmt: skip
    reported = re.search(r"<pre>(\{.*\})</pre>", done.stdout)
    assert reported, done.stderr[-2000:]
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(reported[1]), console


def _brightness(colour: object) -> int:
    return sum(int(part) for part in re.findall(r"\d+", str(colour))[:3])


@pytest.mark.parametrize(("width", "dark"), [(1_200, False), (_PHONE, True)])
def test_it_shows_every_incident_at_any_width_and_in_both_schemes(tmp_path: Path, width: int, dark: bool) -> None:
    """No message on the console, as many incidents as the data, nothing wider than the screen, legible in the dark;
    each partition has one picture of a readable size, and on a phone nothing needs to be scrolled sideways."""
    seen, console = _seen(tmp_path, width=width, dark=dark)

    assert console == []
    assert seen["rows"] == seen["articles"] == seen["reported"] == 1
    assert seen["inner"] == width
    assert isinstance(seen["width"], int)
    assert seen["width"] <= width
    assert seen["reached"] is True
    assert isinstance(seen["svgs"], list)
    assert len(seen["svgs"]) == seen["figures"] == 1
    assert all(shown["height"] > 100 and shown["width"] <= width for shown in seen["svgs"])
    assert isinstance(seen["text"], int | float)
    assert seen["text"] >= _READABLE_PX
    assert seen["sideways"] == 0
    assert (_brightness(seen["ground"]) < _brightness(seen["ink"])) is dark
