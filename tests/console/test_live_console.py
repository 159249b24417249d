"""The console with a real cluster in a real browser: a paused follower is a finding, and a healed one is not."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from http_calls import ask, stream
from playwright.async_api import BrowserContext, ConsoleMessage, Error, Page, async_playwright
from running_cluster import SETTLE_S, Probe, plan, running, until
from running_console import HELD_UP, Console, console

from strandline.cli.local.local_cluster import LocalCluster

# ---- browser
# A real browser for tests: Debian's Chromium, headless, driven by Playwright.
#
# Invariant: every wait has a deadline; the browser ends with the test, and its profile is removed with the test's
# directory.


CHROMIUM = shutil.which("chromium")
START_S = 60.0
CALL_S = 30.0
UNTIL_S = 20.0


class Tab:
    """One page of the browser. ``console`` is its console output, uncaught errors included."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.console: list[str] = []
        page.set_default_timeout(CALL_S * 1000)
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.console.append(f"exception: {error}"))

    def _said(self, message: ConsoleMessage) -> None:
        self.console.append(f"{message.type}: {message.text}")

    async def open(self, address: str) -> None:
        """Go to an address and wait for its document."""
        await self.page.goto(address)

    async def value(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        return await self.page.evaluate(expression)

    async def text(self, selector: str = "main") -> str:
        """The visible text of an element; empty without one."""
        return str(await self.value(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    async def until(self, expression: str, what: str, timeout_s: float = UNTIL_S) -> float:
        """Returns when (monotonic s) an expression was seen to be true.

        Raises:
            AssertionError: it never was, with what the page shows.
        """
        try:
            await self.page.wait_for_function(f"() => {expression}", timeout=timeout_s * 1000)
        except Error as error:
            shown = await self.text("body")
            raise AssertionError(f"not within {timeout_s:g} s: {what}; the page shows:\n{shown}") from error
        return time.monotonic()

    async def look_like(self, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Set the size of the screen and the colour scheme."""
        await self.page.set_viewport_size({"width": width, "height": height})
        await self.page.emulate_media(color_scheme="dark" if dark else "light")

    async def press(self, key: str) -> None:
        """Press and release one key, by its name in the DOM: `Tab`, `Enter`."""
        await self.page.keyboard.press(key)


@asynccontextmanager
async def chromium(profile: Path, *, script: bool = True) -> AsyncIterator[Tab]:
    """A page of a browser with a profile of its own, which runs scripts or does not; ended at the end."""
    assert CHROMIUM is not None, "tests that need a browser are skipped without one"
    async with async_playwright() as playwright:
        browser: BrowserContext = await playwright.chromium.launch_persistent_context(
            profile,
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu"],
            java_script_enabled=script,
            timeout=START_S * 1000,
        )
        try:
            yield Tab(browser.pages[0])
        finally:
            await browser.close()


# How long after the shrink the page may take; the watch delivers it, so the rest is the browser's time.
SHOWN_WITHIN_S = 2.0
_PHONE = 390

pytestmark = pytest.mark.timeout(240)

needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="chromium is not installed (Debian: apt-get install chromium)"
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three nodes and a controller; at the end each must stop cleanly."""
    with running(plan(tmp_path_factory.mktemp("cluster"))) as three:
        yield three


@pytest_asyncio.fixture
async def probe(cluster: LocalCluster) -> AsyncIterator[Probe]:
    """A probe of the cluster, all of whose processes run."""
    async with Probe(cluster) as asking:
        await asking.everybody()
        yield asking


@pytest_asyncio.fixture
async def shown(cluster: LocalCluster, tmp_path: Path) -> AsyncIterator[tuple[Console, Tab]]:
    """A console that allows changes, and an empty page of a browser; neither may report an error."""
    async with (
        console(tmp_path, cluster.bootstrap, "--allow-changes", "--report", "/report.html") as running,
        chromium(tmp_path / "profile") as tab,
    ):
        await tab.look_like()
        yield running, tab

        assert tab.console == []


async def _shrunk(probe: Probe, topic: str, node_id: int) -> float:
    """When the controller's ISR was first seen without a node."""

    async def look() -> bool:
        return node_id not in (await probe.partition(topic)).isr

    await until(look, f"node {node_id} leaves the ISR of {topic}")
    return time.monotonic()


@needs_browser
async def test_a_follower_that_stands_still_turns_up_and_goes(probe: Probe, shown: tuple[Console, Tab]) -> None:
    """Within two seconds of the shrink the landing page names partition, replica and node.

    After healing it shows that nothing is wrong; meanwhile the keyboard focus stays where it is.
    """
    running, tab = shown
    await probe.create_topic("a-still", assignment=[1, 2, 3], min_insync_replicas="2")
    await tab.open(f"{running.address}/")
    await tab.until("document.querySelector('#live').dataset.state === 'live'", "the page is live")
    await tab.until("document.querySelector('#verdict').textContent === 'Nothing is wrong.'", "healthy")
    await tab.value("document.querySelector('[data-key=f-out]').focus()")

    probe.pause(3)
    try:
        seen, turned_up = await asyncio.gather(
            _shrunk(probe, "a-still", 3),
            tab.until("document.querySelector('#finding-out-of-sync')?.innerText.includes('a-still-0')", "it turns up"),
        )
        assert turned_up - seen < SHOWN_WITHIN_S
        await tab.until("document.querySelector('#finding-fenced')?.innerText.includes('Node 3 is fenced')", "fenced")
        assert "at min ISR" in await tab.text("#verdict")
        assert await tab.value("document.querySelector('#finding-out-of-sync .chip.down b').innerText") == "3"
        assert "ISR {1, 2, 3} → {1, 2}" in await tab.text()
        assert await tab.value("document.title") == "! What is wrong now - Strandline console"
        assert await tab.value("document.activeElement.dataset.key") == "f-out"
    finally:
        probe.resume(3)
    await tab.until(
        "document.querySelector('#verdict').textContent === 'Nothing is wrong.'", "it goes", timeout_s=SETTLE_S
    )
    assert await tab.value("document.querySelector('.finding')") is None
    assert "ISR {1, 2} → {1, 2, 3}" in await tab.text()


@needs_browser
async def test_a_partition_has_its_figures_and_lanes(probe: Probe, shown: tuple[Console, Tab]) -> None:
    """HW and LEO are those of the log, each replica has a lane that grows, and the keyboard reaches the lane's page."""
    running, tab = shown
    await probe.create_topic("lanes", assignment=[2, 1, 3])
    await tab.open(f"{running.address}/partitions?q=lanes")
    await tab.until("document.querySelectorAll('.chip').length === 3", "three replicas")
    await tab.until("document.querySelector('.chip.leader .leo').innerText === '0'", "the leader's LEO is measured")
    assert (await tab.text("tbody tr")).startswith("lanes-0")

    await tab.value("document.querySelector('select[name=sort]').focus()")
    for _ in range(10):
        await tab.press("Tab")
        if await tab.value("document.activeElement.dataset.key") == "lanes-0":
            break
    await tab.press("Enter")
    await tab.until("location.pathname === '/partitions/lanes/0' && document.readyState === 'complete'", "its page")
    curves = "[...document.querySelectorAll('.lane .curve.leo')].filter(e => e.getAttribute('d').includes('L'))"
    await tab.until(f"{curves}.length === 3", "three lanes with a curve")
    await tab.until("document.querySelector('#part-partition').innerText.includes('of 3, min ISR')", "its figures")


@needs_browser
async def test_it_fits_phones_and_the_dark(probe: Probe, shown: tuple[Console, Tab]) -> None:
    """No page is wider than a phone, in the dark the ink is lighter than the ground, and nothing is out of reach."""
    running, tab = shown
    await probe.create_topic("phone.with_a_rather_long_name-that-does-not-end", partitions=2)
    await tab.look_like(width=_PHONE, height=844, dark=True)
    for path in (
        "/",
        "/partitions",
        "/partitions/phone.with_a_rather_long_name-that-does-not-end/1",
        "/nodes",
        "/topics",
        "/groups",
        "/moves",
    ):
        await tab.open(running.address + path)
        await tab.until("document.querySelector('#live').dataset.state === 'live'", "the page is live")

        assert await tab.value("document.documentElement.scrollWidth") <= _PHONE, path
        colours = await tab.value(
            "['backgroundColor', 'color'].map(name => getComputedStyle(document.body)[name].match(/\\d+/g)"
            ".reduce((sum, each) => sum + Number(each), 0))"
        )
        assert colours[0] < colours[1], path


@needs_browser
async def test_without_scripts_the_state_is_there(cluster: LocalCluster, probe: Probe, tmp_path: Path) -> None:
    """A browser without scripts shows the same parts, and when they were made."""
    await probe.create_topic("plain")
    async with console(tmp_path, cluster.bootstrap) as running, chromium(tmp_path / "profile", script=False) as tab:
        html = ""
        async with asyncio.timeout(20):
            while "plain-0" not in html:
                await tab.open(f"{running.address}/partitions?q=plain")
                html = await tab.page.content()

    assert "reload for newer" in html
    assert '<button id="pause" type="button" hidden="">' in html


@needs_browser
async def test_a_topic_is_created_by_the_form(probe: Probe, shown: tuple[Console, Tab]) -> None:
    """An error is shown with its code, and the input stays; corrected, the topic exists and is listed."""
    running, tab = shown
    await tab.open(f"{running.address}/topics")
    await tab.value("document.querySelector('#new-topic').open = true")
    fill = (
        "document.querySelector('[name=name]').value = 'by-form';"
        "document.querySelector('[name=partitions]').value = '2';"
        "document.querySelector('[name=replication_factor]').value = '%s';"
        "document.querySelector('.new-topic').requestSubmit()"
    )
    await tab.value(fill % 9)
    await tab.until("document.querySelector('#refusal')", "it is refused")
    refusal = await tab.text("#refusal")
    assert "INVALID_REPLICATION_FACTOR" in refusal
    assert "what to do" in refusal
    assert await tab.value("document.querySelector('[name=name]').value") == "by-form"
    # The browser logs the error status of the answer; that is expected.
    assert [line for line in tab.console if "422" not in line] == []
    tab.console.clear()

    await tab.value(fill % 3)
    await tab.until("location.search === '?created=by-form' && document.querySelector('.notice.good')", "it is created")
    await tab.until("document.querySelector('[data-key=\"topic-by-form\"]')", "it is listed")
    assert len((await probe.topic("by-form")).partitions) == 2


async def test_a_controller_that_is_gone_is_reported_with_the_age_of_what_is_known(
    cluster: LocalCluster, probe: Probe, tmp_path: Path
) -> None:
    """While the controller is paused the page keeps its last state and shows how old that is; then it recovers."""
    await probe.create_topic("old")
    async with console(tmp_path, cluster.bootstrap) as running:

        async def says(words: str) -> bool:
            return words in (await ask(running.address, "/")).text

        await until(lambda: says("Nothing is wrong."), "healthy", timeout_s=20)
        cluster.controller.pause()
        try:
            await until(lambda: says("The controller does not answer"), "the controller is missed", timeout_s=20)
            assert "old-0" in (await ask(running.address, "/partitions")).text
        finally:
            cluster.controller.resume()
        await until(lambda: says("Nothing is wrong."), "it is well again", timeout_s=SETTLE_S)


async def test_a_stream_tells_only_what_changed(probe: Probe, cluster: LocalCluster, tmp_path: Path) -> None:
    """The first event has every live part; with streams open, the console ends at once."""
    await probe.create_topic("events")
    async with (
        console(tmp_path, cluster.bootstrap, *HELD_UP) as running,
        stream(running.address, "/live/nodes") as (reader, _, _),
    ):
        first = await asyncio.wait_for(reader.readuntil(b"\n\n"), 10)
        while b'"parts"' not in first:
            first = await asyncio.wait_for(reader.readuntil(b"\n\n"), 10)
        assert b'"state"' in first
        assert b'"nodes"' in first
        later = await asyncio.wait_for(reader.readuntil(b"\n\n"), 10)
        assert b"data: " in later
        await running.stop()
