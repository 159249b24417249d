"""How a command reaches the cluster: the one place that opens the client library.

Invariant: every command closes what it opened, whatever happened in between.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from strandline.cli.failures import CommandFailed
from strandline.cli.options import addresses
from strandline.cli.over_tls import tls_options

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from strandline.client import Admin


TOPIC_TIMEOUT_MS = 2_000
"""How long a topic may take to be known: the first snapshot names all there are, so this is for new ones."""


@asynccontextmanager
async def known_topic(name: str) -> AsyncIterator[None]:
    """Bounds the wait for a topic inside.

    Raises:
        CommandFailed: the topic did not become known in time.
    """
    try:
        async with asyncio.timeout(TOPIC_TIMEOUT_MS / 1000):
            yield
    except TimeoutError:
        raise CommandFailed(
            f"UNKNOWN_TOPIC_OR_PARTITION: no topic is named {name!r}; `strandline topic create {name}` makes it"
        ) from None


@asynccontextmanager
async def open_admin(bootstrap: str) -> AsyncIterator[Admin]:
    """An `Admin` at ``bootstrap`` (host:port, separated by commas)."""
    from strandline.client import Admin

    async with Admin(addresses(bootstrap), **tls_options()) as admin:
        yield admin
