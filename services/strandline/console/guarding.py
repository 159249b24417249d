"""Which requests are answered at all, and which of them may change something.

Invariant: a change needs a form of our own (a token bound to a cookie that only this site gets), sent from our own
origin, to a host name that is ours; each of the three alone would refuse a page of strangers.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Sequence
from hashlib import sha256
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "strandline-console"
MOST_BODY_BYTES = 64 << 10

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = [
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    # Not "no-referrer": browsers would then send forms with the origin "null".
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


class Guard:
    """Wraps the application: host names that are ours, and headers on every answer."""

    def __init__(self, app: ASGIApp, allowed_hosts: Sequence[str]) -> None:
        self._app = app
        self._allowed = frozenset(host.lower() for host in allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or answer with our headers."""

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *_HEADERS]}
            await send(message)

        if scope["type"] == "http" and not self.is_ours(Request(scope).headers.get("host", "")):
            said = b"this console is not served under that name; see the setting hosts\n"
            await send_guarded(
                {"type": "http.response.start", "status": 421, "headers": [(b"content-type", b"text/plain")]}
            )
            await send_guarded({"type": "http.response.body", "body": said})
            return
        await self._app(scope, receive, send_guarded)

    def is_ours(self, host: str) -> bool:
        """Whether a Host header names this console."""
        if not self._allowed:
            return True
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        return name.lower() in self._allowed


class Tokens:
    """Tokens of forms, good for as long as this process lives."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def session_of(self, request: Request) -> str:
        """The browser's cookie, or a new one."""
        return request.cookies.get(COOKIE, "")[:64] or secrets.token_urlsafe(24)

    def token(self, session: str) -> str:
        """The token of a cookie."""
        return hmac.new(self._secret, session.encode(), sha256).hexdigest()

    def is_good(self, request: Request, token: str) -> bool:
        """Whether a token belongs to the request's cookie."""
        session = request.cookies.get(COOKIE, "")
        return bool(session) and hmac.compare_digest(self.token(session).encode(), token.encode())


def is_same_origin(request: Request) -> bool:
    """Whether a form was sent by a page of ours: its origin is the host it was sent to."""
    origin = request.headers.get("origin")
    if origin is None:
        return request.headers.get("sec-fetch-site") == "same-origin"
    return bool(origin) and urlsplit(origin).netloc.lower() == request.headers.get("host", "").lower()
