"""Keeps browsers up to date: server-sent events with the parts of the page that changed.

Invariant: nothing queues up for a browser. While it does not read, nothing is made for it; when it reads again it gets
the newest state. One that does not read for too long is disconnected, and so are all at a stop.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping

from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from strandline.console.pages import Page, write_part

# ---- pulse
# Notifies browsers of changes: at once after a quiet time, and never more often than a user can see.
#
# Invariant: there is no queue. A waiting browser gets the newest version there is; what came in between is skipped.


class Pulse:
    """A version number that many wait for."""

    def __init__(self, least_ms: int) -> None:
        """``least_ms``: the shortest time between two versions."""
        self.version = 0
        self._least_s = least_ms / 1000
        self._dirty = asyncio.Event()
        self._next = asyncio.Event()

    def mark(self) -> None:
        """Note that something changed."""
        self._dirty.set()

    async def run(self) -> None:
        """Publish new versions until cancelled."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            self.version += 1
            self._next.set()
            self._next = asyncio.Event()
            await asyncio.sleep(self._least_s)

    async def newer_than(self, version: int) -> int:
        """The newest version, as soon as there is one above ``version``."""
        while self.version <= version:
            await self._next.wait()
        return self.version


SEND_DEADLINE_S = 20.0
_RETRY_MS = 1_000
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class TooManyBrowsers(Exception):
    """Raised when no further page can be kept live."""


class Streams:
    """The streams to all browsers."""

    def __init__(self, pulse: Pulse, most: int) -> None:
        self._pulse = pulse
        self._most = most
        self._open = 0
        self._stopping = asyncio.Event()

    @property
    def open(self) -> int:
        """The number of open streams."""
        return self._open

    def stop(self) -> None:
        """End every stream."""
        self._stopping.set()

    async def serve(self, make: Callable[[int], Page], receive: Receive, send: Send) -> None:
        """Send what changes on the page that ``make`` gives for a version, until the browser goes or we stop.

        Raises:
            TooManyBrowsers: before anything was sent.
        """
        if self._open >= self._most or self._stopping.is_set():
            raise TooManyBrowsers
        self._open += 1
        ends = [
            asyncio.create_task(_gone(receive), name="browser leaves"),
            asyncio.create_task(self._stopping.wait(), name="console stops"),
            asyncio.create_task(self._tell(make, send), name="parts for a browser"),
        ]
        try:
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self._open -= 1
            for task in ends:
                task.cancel()
            await asyncio.gather(*ends, return_exceptions=True)
        if self._stopping.is_set():
            await _send(send, b"", more=False)

    async def _tell(self, make: Callable[[int], Page], send: Send) -> None:
        await _send(send, f"retry: {_RETRY_MS}\n\n".encode(), begin=True)
        reported: dict[str, str] = {}
        version = -1
        while True:
            version = await self._pulse.newer_than(version)
            page = make(version)
            parts = {part.name: write_part(page, part) for part in page.parts if part.live}
            news = {name: html for name, html in parts.items() if reported.get(name) != html}
            reported = parts
            if not await _send(send, event(page.title, version, news)):
                return


def event(title: str, version: int, parts: Mapping[str, str]) -> bytes:
    """One event: the page's title and the parts that changed. JSON has no line breaks of its own."""
    data = json.dumps({"title": title, "parts": parts}, ensure_ascii=False, separators=(",", ":"))
    return f"id: {version}\ndata: {data}\n\n".encode()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send(send: Send, body: bytes, *, begin: bool = False, more: bool = True) -> bool:
    """Send a piece; returns False if the browser did not take it in time."""
    try:
        async with asyncio.timeout(SEND_DEADLINE_S):
            if begin:
                await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            message: Message = {"type": "http.response.body", "body": body, "more_body": more}
            await send(message)
    except TimeoutError:
        return False
    return True


class LiveResponse:
    """A response that is a stream; refuses with 503 if there are too many."""

    def __init__(self, streams: Streams, make: Callable[[int], Page]) -> None:
        self._streams = streams
        self._make = make

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the stream."""
        try:
            await self._streams.serve(self._make, receive, send)
        except TooManyBrowsers:
            refusal = PlainTextResponse("too many pages are kept live; close one\n", 503, {"retry-after": "10"})
            await refusal(scope, receive, send)
