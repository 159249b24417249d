"""Slow links: a TCP proxy in the namespace of the connecting side, with a variable delay and bandwidth.

Invariant: a connection made while the proxy is in place goes through it, whether the link is slow or not; slowed bytes
are counted, because a slow link that carried nothing had no effect. The kernel's own delay (netem) is not available on
every machine, and over TCP it would look the same.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.cluster import Cluster
from harness.namespaces import ADDRESSES, Namespaces
from harness.scenario import Fault

_PROGRAM = Path(__file__).with_name("proxy_process.py")
_MARK = 0x51
_ports = itertools.count(19_001)


@dataclass(slots=True)
class Proxy:
    """One proxy process; ``inside`` is prepended to its command."""

    host: str
    port: int
    listen: int = 0
    """0: the kernel chooses."""
    inside: list[str] = field(default_factory=list)
    mark: int = 0
    _process: subprocess.Popen[str] | None = field(default=None, repr=False)

    def start(self) -> None:
        """Starts it; returns when it listens, on ``listen``."""
        words = [str(self.listen), self.host, str(self.port), str(self.mark)]
        self._process = subprocess.Popen(
            [*self.inside, sys.executable, str(_PROGRAM), *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.listen = self._answer()["port"]

    def stop(self) -> None:
        """Ends it, and with it all connections."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def slow(self, delay_ms: float, bytes_per_s: float | None) -> None:
        """Sets the link's delay and bandwidth from now on; 0 and None mean full speed."""
        self._ask({"delay_ms": delay_ms, "bytes_per_s": bytes_per_s})

    @property
    def slowed_bytes(self) -> int:
        """Bytes carried while it was slow, both directions."""
        return int(self._ask({})["slowed_bytes"])

    @property
    def connections(self) -> int:
        """The number of connections so far."""
        return int(self._ask({})["connections"])

    def _ask(self, order: dict[str, Any]) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the proxy to {self.host}:{self.port} ended with {self._process.poll()}"
        return dict(json.loads(line))


@dataclass(slots=True)
class ProxiedLink:
    """Routes connections from ``sender`` to ``receiver``'s port through a proxy in the sender's namespace."""

    namespaces: Namespaces
    sender: str
    receiver: str
    port: int
    proxy: Proxy = field(init=False, repr=False)

    def start(self) -> None:
        """Connections made from now on go through the proxy."""
        self.proxy = Proxy(
            host=ADDRESSES[self.receiver],
            port=self.port,
            listen=next(_ports),
            inside=self.namespaces.inside(self.sender),
            mark=_MARK,
        )
        self.proxy.start()
        self.namespaces.iptables(self.sender, "-t", "nat", "-A", *self._rule)

    def stop(self) -> None:
        """Removes rule and proxy; connections through it are closed."""
        self.namespaces.iptables(self.sender, "-t", "nat", "-D", *self._rule)
        self.proxy.stop()

    @property
    def _rule(self) -> list[str]:
        where = ["OUTPUT", "-p", "tcp", "-d", ADDRESSES[self.receiver], "--dport", str(self.port)]
        return [*where, "-m", "mark", "!", "--mark", str(_MARK), "-j", "DNAT", "--to", f"127.0.0.1:{self.proxy.listen}"]


@dataclass(slots=True)
class SlowLink(Fault):
    """A proxied link becomes slow: a delay in ms each way, a bandwidth in bytes per second each way."""

    link: ProxiedLink
    delay_ms: float = 100.0
    bytes_per_s: float | None = 3_000_000 / 8
    _before: int = 0
    _slowed_bytes: int = 0

    async def apply(self, cluster: Cluster) -> None:
        self._before = self.link.proxy.slowed_bytes
        self.link.proxy.slow(self.delay_ms, self.bytes_per_s)

    async def undo(self, cluster: Cluster) -> None:
        self.link.proxy.slow(0, None)
        self._slowed_bytes = self.link.proxy.slowed_bytes - self._before

    @property
    def effects(self) -> Mapping[str, int]:
        return {"slow_link_bytes": self._slowed_bytes}

    def described(self) -> str:
        return f"SlowLink({self.link.sender}->{self.link.receiver}, {self.delay_ms:g} ms, {self.bytes_per_s} bytes/s)"
