"""A port of loopback that nobody listens on now."""

from __future__ import annotations

import socket


def free_port() -> int:
    """The kernel's choice; it is free again when this returns."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
