"""Chooses the transport of this process's calls: our own on asyncio, or gRPC's C core (docs/TRANSPORT.md).

Invariant: a process has one transport for all ports and channels, chosen before the first of them. Peers may differ,
because both transports speak gRPC on the wire.
"""

from __future__ import annotations

import os
from typing import Any

import grpc

from strandline import transport

VARIABLE = "STRANDLINE_GRPC_TRANSPORT"
"""The environment variable for clients and commands; services have the setting ``grpc_transport``."""


TRANSPORTS: dict[str, Any] = {"asyncio": transport, "grpcio": grpc.aio}
"""The transports by name; each has ``server``, ``insecure_channel`` and ``secure_channel`` with `grpc.aio`'s
signatures. The first is the default."""

_chosen: Any = None


def use(name: str) -> None:
    """Use this transport for all servers and channels that are created later.

    Raises:
        ValueError: there is no transport of this name.
    """
    global _chosen
    if name not in TRANSPORTS:
        raise ValueError(f"{VARIABLE}={name}: it is {' or '.join(TRANSPORTS)}")
    _chosen = TRANSPORTS[name]


def aio() -> Any:
    """The transport of this process's calls.

    Raises:
        ValueError: the environment variable names no transport.
    """
    if _chosen is None:
        use(os.environ.get(VARIABLE) or next(iter(TRANSPORTS)))
    return _chosen
