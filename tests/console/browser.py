"""A real browser for tests: Debian's Chromium, headless, driven by Playwright.

Invariant: every wait has a deadline; the browser ends with the test, and its profile is removed with the test's
directory.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import BrowserContext, ConsoleMessage, Error, Page, async_playwright

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
