"""Whether the active controller's process lives, seen by a connection (C3)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from strandline.core.messages import Endpoint
from strandline.core.reign_events import Look

_CONNECT_S = 0.5
_ALIVE_S = 0.1
"""How long a connection that was accepted must stay open, if nothing is said on it."""
MOST_S = 2 * (_CONNECT_S + _ALIVE_S)
"""How long a look at a controller's two addresses may take."""


async def look_at(addresses: Iterable[Endpoint]) -> Look:
    """REACHED if any address is served, REFUSED if each refuses, else SILENT."""
    return _together([await _look(address) for address in addresses])


async def _look(address: Endpoint) -> Look:
    """Connect once, and see whether a process answers behind the connection.

    A dying process may still accept, and resets a moment later; that is no life and no refusal.
    """
    try:
        async with asyncio.timeout(_CONNECT_S):
            reader, writer = await asyncio.open_connection(address.host, address.port)
    except ConnectionRefusedError:
        return Look.REFUSED
    except (OSError, TimeoutError):
        return Look.SILENT
    try:
        async with asyncio.timeout(_ALIVE_S):
            # A gRPC server speaks first; with TLS it waits, and so does one that is stopped.
            return Look.REACHED if await reader.read(1) else Look.SILENT
    except TimeoutError:
        return Look.REACHED
    except OSError:
        return Look.SILENT
    finally:
        writer.close()


def _together(looks: Sequence[Look]) -> Look:
    if Look.REACHED in looks:
        return Look.REACHED
    return Look.REFUSED if looks and all(look is Look.REFUSED for look in looks) else Look.SILENT
