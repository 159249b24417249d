"""Which of two transports carries the calls of this process: ours on asyncio, or gRPC's C core (docs/TRANSPORT.md).

Invariant: one process has one, chosen before its first server or channel; a port has that of its process. Peers need
not agree: on the wire both are gRPC.
"""

from __future__ import annotations

import os
from typing import Any

import grpc

from strandline import transport

VARIABLE = "STRANDLINE_GRPC_TRANSPORT"
"""Chooses for clients and commands; services have the setting ``grpc_transport``, whose variable this is."""


TRANSPORTS: dict[str, Any] = {"asyncio": transport, "grpcio": grpc.aio}
"""By name, what has ``server``, ``insecure_channel`` and ``secure_channel`` with `grpc.aio`'s signatures; the default
is the first."""

_chosen: Any = None


def use(name: str) -> None:
    """Carry the calls of servers and channels that are made from now on in this way.

    Raises:
        ValueError: it names neither.
    """
    global _chosen
    if name not in TRANSPORTS:
        raise ValueError(f"{VARIABLE}={name}: it is {' or '.join(TRANSPORTS)}")
    _chosen = TRANSPORTS[name]


def aio() -> Any:
    """The one that carries this process's calls.

    Raises:
        ValueError: the variable names neither.
    """
    if _chosen is None:
        use(os.environ.get(VARIABLE) or next(iter(TRANSPORTS)))
    return _chosen
