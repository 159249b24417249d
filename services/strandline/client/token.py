"""The token by which one client shows who it is: asked for at its start, and again before its end.

Invariant: a token is in the headers of calls over TLS and nowhere else: in no line of the log, no error and no `repr`.
While there is no new one the old one is shown, and servers decide.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import re
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from strandline.client.log import log
from strandline.rpc.channels import Backoff
from strandline.rpc.tls import CallMetadata, Tls, TlsWithToken, TlsWrong, is_given

TokenCallback = Callable[[], str | Awaitable[str]]
"""Returns a token that holds for a while, as an OpenID provider gives it. One that waits for nothing asynchronously is
called in a thread of its own."""

PATIENCE_S = 10.0
"""For the callback."""
_AT = 0.8
"""The part of a token's life after which another one is asked for."""
_TOKEN = re.compile(r"[!-~]{1,8192}")


class NoToken(ValueError):
    """The callback gave none; the sentence says what, and never what it gave or raised."""


class Token:
    """The token of one client."""

    def __init__(self, ask: TokenCallback) -> None:
        self._ask = ask
        self._token = ""
        self._due_s: float | None = None
        self._refused = asyncio.Event()
        self._is_good = asyncio.Event()

    def tls(self, cert: str | Path | bytes, key: str | Path | bytes, ca: str | Path | bytes) -> Tls:
        """TLS for a client that shows it.

        Raises:
            TlsWrong: a certificate is given, too, or no authority.
        """
        if is_given(cert) or is_given(key):
            raise TlsWrong("a client shows a token or a certificate; give tls_ca and token, or leave token out")
        if not is_given(ca):
            raise TlsWrong("token needs tls_ca: without TLS whoever reads a token on its way has it; give tls_ca")
        return TlsWithToken(ca, self.metadata)

    def metadata(self) -> CallMetadata:
        """What a call carries now."""
        return (("authorization", f"Bearer {self._token}"),)

    def refused(self, shown: CallMetadata) -> None:
        """A server did not believe what a call carried; no matter, if there is another token meanwhile."""
        if shown == self.metadata():
            self._is_good.clear()
            self._refused.set()

    async def another(self, seconds: float) -> None:
        """Until there is one that no server has refused, or the time is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._is_good.wait()

    async def renew(self) -> None:
        """Ask for a token.

        Raises:
            NoToken: the callback failed, took longer than `PATIENCE_S`, or gave none.
        """
        now_s = time.monotonic()
        try:
            async with asyncio.timeout(PATIENCE_S):
                is_async = inspect.iscoroutinefunction(self._ask)
                given = self._ask() if is_async else await asyncio.to_thread(self._ask)
                token: object = await given if inspect.isawaitable(given) else given
        except NoToken:
            raise
        except Exception as error:
            # Its text may hold what the callback logs in with.
            raise NoToken(f"the callback for tokens failed: {type(error).__name__}") from error
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise NoToken("the callback for tokens gave no token: a string without spaces, of at most 8192 characters")
        lasts_s = _lasts_s(token)
        self._token, self._due_s = token, None if lasts_s is None else now_s + lasts_s * _AT
        self._is_good.set()

    async def keep_forever(self) -> None:
        """Ask again before the token ends, and when a server has refused it; at most about once a second."""
        backoff = Backoff(1_000, 30_000)
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(None if self._due_s is None else self._due_s - time.monotonic()):
                    await self._refused.wait()
            self._refused.clear()
            try:
                await self.renew()
                backoff.reset()
            except NoToken as error:
                log.warning("%s; the old token is shown until it works", error)
                self._due_s = time.monotonic()
            await asyncio.sleep(backoff.next_s())


def _lasts_s(token: str) -> float | None:
    """For how long, as the token says; None for one of a kind that does not."""
    try:
        claims = token.split(".")[1]
        content = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
        return min(86_400.0, max(0.0, float(content["exp"]) - time.time()))
    except (IndexError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
