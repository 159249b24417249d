"""Plain HTTP for tests: one request at a time, and a stream that is opened and read, or not read.

Invariant: every call has a deadline.
"""

from __future__ import annotations

import asyncio
import http.client
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

CALL_S = 10.0


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP response; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    text: str


async def ask(
    address: str,
    path: str,
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    form: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> Answer:
    """One request; a form is sent like from a browser."""
    return await asyncio.to_thread(_ask, address, path, method, headers or {}, form, body)


def _ask(
    address: str, path: str, method: str, headers: Mapping[str, str], form: Mapping[str, str] | None, body: bytes | None
) -> Answer:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=CALL_S)
    sent = dict(headers)
    if form is not None:
        body = urlencode(form).encode()
        sent.setdefault("Content-Type", "application/x-www-form-urlencoded")
    try:
        connection.request(method, path, body, sent)
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, found, answer.read().decode())
    finally:
        connection.close()


async def fresh_form(address: str) -> tuple[str, dict[str, str]]:
    """The token of a fresh form, and the headers a browser would send with it."""
    page = await ask(address, "/topics")
    found = re.search(r'name="token" value="(\w+)"', page.text)
    assert found is not None
    return found[1], {"Cookie": page.headers["set-cookie"].partition(";")[0], "Origin": address}


async def create(address: str, headers: dict[str, str], **form: str) -> Answer:
    """Send the form of a new topic."""
    given = {"name": "x", "partitions": "", "replication_factor": "", "configs": ""} | form
    return await ask(address, "/topics", method="POST", headers=headers, form=given)


@asynccontextmanager
async def stream(address: str, path: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter, int]]:
    """A stream of events, closed at the end: reader, writer and status; nothing beyond the headers is read."""
    parts = urlsplit(address)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), CALL_S)
        yield reader, writer, int(head.split()[1])
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
