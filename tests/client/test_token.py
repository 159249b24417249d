"""When a client asks for another token, and what it shows meanwhile."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import logging
import threading
import time

import pytest
from tests.client.fake_cluster import until

from strandline.client import NoToken, token as module
from strandline.client.token import Token


def _token(number: int, *, lasts_s: float) -> str:
    claims = json.dumps({"exp": time.time() + lasts_s, "jti": number}).encode()
    return f"e30.{base64.urlsafe_b64encode(claims).decode().rstrip('=')}.sig"


async def test_a_token_is_replaced_before_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """After four fifths of the life that it names; one that names none is kept."""
    monkeypatch.setattr(module, "LOOK_S", 0.01)
    asked_s: list[float] = []
    again, loop = asyncio.Event(), asyncio.get_running_loop()

    def ask() -> str:
        asked_s.append(time.monotonic())
        if len(asked_s) == 1:
            return _token(1, lasts_s=1.0)
        loop.call_soon_threadsafe(again.set)
        return "opaque"

    token = Token(ask)
    await token.renew()
    keeping = asyncio.create_task(token.keep_forever())
    try:
        await asyncio.wait_for(again.wait(), 10)
        async with asyncio.timeout(10), token._asking:
            assert token.metadata() == (("authorization", "Bearer opaque"),)
    finally:
        keeping.cancel()

    assert asked_s[1] - asked_s[0] >= 0.7
    assert token._due_s == float("inf")


async def test_what_was_refused_is_replaced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many calls that a server refuses with one token, the first has it replaced, and not too soon."""
    monkeypatch.setattr(module, "LOOK_S", 0.1)
    given = [_token(number, lasts_s=100) for number in range(3)]
    token = Token(iter(given).__next__)
    await token.renew()
    began_s, refused = time.monotonic(), token.metadata()
    await asyncio.gather(*(token.replace(refused) for _ in range(10)))

    assert token.metadata() == (("authorization", f"Bearer {given[1]}"),)
    assert time.monotonic() - began_s >= 0.05


async def test_the_old_token_is_shown_while_there_is_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A line says so after a second, without what the callback raised; the next success counts."""
    monkeypatch.setattr(module, "LOOK_S", 0.0)
    clock_s = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock_s[0])
    good, is_away = _token(1, lasts_s=100), [False]

    async def ask() -> str:
        if is_away[0]:
            raise OSError("client_secret=hidden")
        return good

    token = Token(ask)
    await token.renew()
    is_away[0] = True
    with caplog.at_level(logging.WARNING, "strandline.client"):
        for clock_s[0] in (1.0, 3.0):
            await token.replace(token.metadata())
    with pytest.raises(NoToken):
        await token.renew()

    assert token.metadata() == (("authorization", f"Bearer {good}"),)
    assert "asking for a token: tried again for 2.0 s now: the callback for tokens failed: OSError" in caplog.text
    assert "hidden" not in caplog.text
    assert good not in caplog.text


async def test_a_callback_that_hangs_takes_one_thread(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is called again once it has returned, takes none of the threads that others share, and its error is kept."""
    monkeypatch.setattr(module, "PATIENCE_S", 0.01)
    goes_on, calls = threading.Event(), list[bool]()

    def ask() -> str:
        calls.append(goes_on.wait(60))
        if len(calls) == 1:
            raise OSError("hidden")
        return _token(1, lasts_s=100)

    token = Token(ask)
    for _ in range(40):
        with pytest.raises(NoToken):
            await token.renew()
    goes_on.set()
    monkeypatch.setattr(module, "PATIENCE_S", 60.0)
    await until(lambda: token._called is not None and token._called.done())
    await asyncio.wait_for(asyncio.to_thread(time.time), 60)
    await token.renew()
    gc.collect()

    assert len(calls) == 2
    assert "hidden" not in caplog.text
