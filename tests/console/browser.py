"""A real browser for tests: Debian's Chromium without a screen, driven over DevTools on two pipes.

Invariant: every wait has a deadline; the browser and everything it started end with it, and its profile goes with the
test's directory.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium")
START_S = 60.0
CALL_S = 30.0
_LOOK_EVERY_S = 0.05
_FLAGS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe",
]  # fmt: skip


class DevToolsRefused(Exception):
    """The browser refused a call."""


class Tab:
    """One page of the browser."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self.console: list[str] = []

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One DevTools call."""
        return await self._browser.call(method, params, self._session)

    async def open(self, address: str) -> None:
        """Go to an address and wait for its document."""
        await self.call("Page.navigate", url=address)
        await self.until(
            f"document.readyState === 'complete' && location.href === {json.dumps(address)}", f"{address} is loaded"
        )

    async def value(self, expression: str) -> Any:
        """What a JavaScript expression gives."""
        answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def text(self, selector: str = "main") -> str:
        """The visible text of an element; empty without one."""
        return await self.value(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")

    async def source(self) -> str:
        """The document as it is now, for pages that run no script; empty while another one takes its place."""
        found = await self.call("DOM.getDocument", depth=0)
        try:
            return str((await self.call("DOM.getOuterHTML", nodeId=found["root"]["nodeId"]))["outerHTML"])
        except DevToolsRefused:
            return ""

    async def until(self, expression: str, what: str, timeout_s: float = 20.0) -> float:
        """When (monotonic s) an expression was seen to be true.

        Raises:
            AssertionError: it never was, with what the page shows.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if await self.value(f"Boolean({expression})"):
                return time.monotonic()
            await asyncio.sleep(_LOOK_EVERY_S)
        raise AssertionError(f"not within {timeout_s:g} s: {what}; the page shows:\n{await self.text('body')}")

    async def look_like(self, *, width: int = 1280, height: int = 900, dark: bool = False, script: bool = True) -> None:
        """The size of the screen, the colour scheme, and whether scripts run."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])
        await self.call("Emulation.setScriptExecutionDisabled", value=not script)

    async def press(self, key: str) -> None:
        """Press and let go one key, `Tab` or `Enter`."""
        code = {"Tab": 9, "Enter": 13}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            await self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    async def picture(self, *, whole: bool = True) -> bytes:
        """A screenshot as PNG."""
        answer = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(answer["data"])


class Browser:
    """A running Chromium."""

    def __init__(self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, out: int) -> None:
        self._process = process
        self._reader = reader
        self._out = out
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._tabs: dict[str, Tab] = {}
        self._reading = asyncio.create_task(self._read())

    async def call(self, method: str, params: dict[str, Any], session: str | None = None) -> dict[str, Any]:
        """One DevTools call to the browser or to a tab."""
        number = next(self._ids)
        message = {"id": number, "method": method, "params": params} | ({"sessionId": session} if session else {})
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        os.write(self._out, json.dumps(message).encode() + b"\0")
        try:
            return await asyncio.wait_for(answer, START_S if number == 1 else CALL_S)
        finally:
            del self._waiting[number]

    async def tab(self) -> Tab:
        """A new page, in a context of its own."""
        context = (await self.call("Target.createBrowserContext", {}))["browserContextId"]
        made = await self.call("Target.createTarget", {"url": "about:blank", "browserContextId": context})
        attached = await self.call("Target.attachToTarget", {"targetId": made["targetId"], "flatten": True})
        tab = self._tabs[attached["sessionId"]] = Tab(self, attached["sessionId"])
        for domain in ("Page", "Runtime", "Log"):
            await tab.call(f"{domain}.enable")
        return tab

    async def _read(self) -> None:
        while True:
            message = json.loads((await self._reader.readuntil(b"\0"))[:-1])
            if "id" in message:
                self._answered(message)
            elif message.get("sessionId") in self._tabs:
                self._tabs[message["sessionId"]].console.extend(_said(message))

    def _answered(self, message: dict[str, Any]) -> None:
        answer = self._waiting.get(message["id"])
        if answer is None or answer.done():
            return
        if "error" in message:
            answer.set_exception(DevToolsRefused(message["error"]))
        else:
            answer.set_result(message["result"])

    async def close(self) -> None:
        """End the browser, by force if it does not."""
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        # Without its pipe the browser ends by itself.
        os.close(self._out)
        try:
            await asyncio.wait_for(self._process.wait(), 10)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


def _said(message: dict[str, Any]) -> list[str]:
    params = message.get("params", {})
    match message.get("method"):
        case "Runtime.consoleAPICalled":
            return [f"{params['type']}: {[each.get('value') for each in params['args']]}"]
        case "Runtime.exceptionThrown":
            return [f"exception: {params['exceptionDetails']}"]
        case "Log.entryAdded":
            return [f"{params['entry']['level']}: {params['entry']['text']} {params['entry'].get('url', '')}"]
    return []


@asynccontextmanager
async def chromium(profile: Path) -> AsyncIterator[Browser]:
    """A browser with a profile of its own; ended at the end."""
    assert CHROMIUM is not None, "tests that need a browser are skipped without one"
    to_browser, out = os.pipe()
    back, from_browser = os.pipe()
    script = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", script, CHROMIUM, *_FLAGS, f"--user-data-dir={profile}", "about:blank",
        pass_fds=(to_browser, from_browser), stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    os.close(to_browser)
    os.close(from_browser)
    reader = asyncio.StreamReader(limit=64 << 20)
    pipe = os.fdopen(back, "rb", buffering=0)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    browser = Browser(process, reader, out)
    try:
        yield browser
    finally:
        await browser.close()
        transport.close()
