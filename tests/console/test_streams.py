"""Streams to browsers: only changes, the newest state for slow ones, and an end for all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping
from typing import Any

import pytest

from strandline.console import streams as streams_module
from strandline.console.pages import Page, Part
from strandline.console.streams import Pulse, Streams, TooManyBrowsers

DEADLINE_S = 10.0


class Browser:
    """One browser: accepts data only while it reads, and leaves on request."""

    def __init__(self) -> None:
        self.reads = asyncio.Event()
        self.reads.set()
        self.leaves = asyncio.Event()
        self.taken: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.offered = asyncio.Event()

    async def receive(self) -> MutableMapping[str, Any]:
        """Blocks until it leaves."""
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Accept a piece, when it reads."""
        self.offered.set()
        await self.reads.wait()
        for line in message.get("body", b"").decode().splitlines():
            if line.startswith("data: "):
                self.taken.put_nowait(json.loads(line.removeprefix("data: ")))

    async def event(self) -> dict[str, Any]:
        """The next event it received."""
        return await asyncio.wait_for(self.taken.get(), DEADLINE_S)


@pytest.fixture(autouse=True)
def parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part's HTML depends only on the page's values for it."""
    monkeypatch.setattr(streams_module, "write_part", lambda page, part: page.values[part.name])


def _page(version: int) -> Page:
    """A part that never changes, one that always does, and one that is not live."""
    return Page(
        title=f"t{version}", section="", parts=(Part(name="same"), Part(name="other"), Part(name="form", live=False)),
        values={"same": "s", "other": f"v{version}", "form": "f"},
    )  # fmt: skip


async def test_only_what_changed_is_reported() -> None:
    """First every live part, then those that differ; parts that are not live never."""
    pulse, browser = Pulse(0), Browser()
    beat = asyncio.create_task(pulse.run())
    serving = asyncio.create_task(Streams(pulse, 1).serve(_page, browser.receive, browser.send))
    first = await browser.event()
    pulse.mark()
    second = await browser.event()
    browser.leaves.set()
    await asyncio.wait_for(serving, DEADLINE_S)
    beat.cancel()

    assert first == {"title": "t0", "parts": {"same": "s", "other": "v0"}}
    assert second == {"title": "t1", "parts": {"other": "v1"}}


async def test_a_slow_browser_gets_the_newest_state() -> None:
    """While it does not read, a hundred versions pass; it gets only the one it was offered, then the last."""
    pulse, browser = Pulse(0), Browser()
    made: list[int] = []

    def make(version: int) -> Page:
        made.append(version)
        return _page(version)

    beat = asyncio.create_task(pulse.run())
    serving = asyncio.create_task(Streams(pulse, 1).serve(make, browser.receive, browser.send))
    await browser.event()
    browser.reads.clear()
    browser.offered.clear()
    pulse.mark()
    await asyncio.wait_for(browser.offered.wait(), DEADLINE_S)
    while pulse.version < 100:
        pulse.mark()
        await asyncio.sleep(0)
    beat.cancel()
    await asyncio.gather(beat, return_exceptions=True)
    newest = pulse.version
    browser.reads.set()

    assert (await browser.event())["parts"] == {"other": "v1"}
    assert (await browser.event())["parts"] == {"other": f"v{newest}"}
    assert made == [0, 1, newest]
    browser.leaves.set()
    await asyncio.wait_for(serving, DEADLINE_S)


async def test_one_that_never_reads_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser that reads nothing for the deadline of a send loses its stream, and its slot is free again."""
    monkeypatch.setattr(streams_module, "SEND_DEADLINE_S", 0.05)
    pulse, browser = Pulse(0), Browser()
    streams = Streams(pulse, 1)
    browser.reads.clear()
    serving = asyncio.create_task(streams.serve(_page, browser.receive, browser.send))
    await asyncio.wait_for(serving, DEADLINE_S)

    assert streams.open == 0


async def test_places_are_bounded_and_a_stop_ends_all() -> None:
    """The one too many is rejected at once; a stop ends the open ones, and no new one is accepted after it."""
    pulse, streams = Pulse(0), Streams(Pulse(0), 2)
    browsers = [Browser(), Browser(), Browser()]
    serving = [asyncio.create_task(streams.serve(_page, each.receive, each.send)) for each in browsers[:2]]
    for each in browsers[:2]:
        await each.event()
    with pytest.raises(TooManyBrowsers):
        await streams.serve(_page, browsers[2].receive, browsers[2].send)

    streams.stop()
    await asyncio.wait_for(asyncio.gather(*serving), DEADLINE_S)
    assert streams.open == 0
    with pytest.raises(TooManyBrowsers):
        await streams.serve(_page, browsers[2].receive, browsers[2].send)
    assert pulse.version == 0
