"""The network of one run: a namespace for each process, joined by a bridge that lives in a namespace of its own.

Invariant: nothing is added to the machine's own network. The driver enters the hub before it starts a thread, so
that it reaches the nodes, and its names carry its process id, so that two runs never meet.

    hub (bridge, the driver) -- ctl, n1, n2, n3 (as many as the scenario has), cli0, cli1
    with several controllers, instead of ctl: c1, c2, c3, and the members of their etcd e1, e2, e3
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

_CLONE_NEWNET = 0x40000000
_RUN = Path("/run/netns")
_OURS = re.compile(r"sl(\d+)-\w+")

HUB = "hub"
ADDRESSES = {
    HUB: "10.77.0.254",
    "ctl": "10.77.0.10",
    "n1": "10.77.0.1",
    "n2": "10.77.0.2",
    "n3": "10.77.0.3",
    "n4": "10.77.0.4",
    "n5": "10.77.0.5",
    "cli0": "10.77.0.20",
    "cli1": "10.77.0.21",
    "c1": "10.77.0.11",
    "c2": "10.77.0.12",
    "c3": "10.77.0.13",
    "e1": "10.77.0.31",
    "e2": "10.77.0.32",
    "e3": "10.77.0.33",
}
"""The address of every namespace, by its short name. Equal in every run: runs cannot see each other."""

CONTROLLERS = ("c1", "c2", "c3")
MEMBERS = ("e1", "e2", "e3")
_COMMON = (HUB, "n1", "n2", "n3", "cli0", "cli1")
WITH_ONE_CONTROLLER = (*_COMMON, "ctl")
WITH_SEVERAL = (*_COMMON, *CONTROLLERS, *MEMBERS)
MORE_NODES = {4: "n4", 5: "n5"}


def ip(*words: str) -> None:
    """Runs `ip`, and raises with its error output."""
    _run(["ip", *words])


def _run(command: list[str]) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)
    if done.returncode != 0:
        raise RuntimeError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
    return done.stdout


@dataclass(slots=True)
class Namespaces:
    """The namespaces of this driver process. Use as a context manager; leaving it removes them all."""

    names: Sequence[str] = WITH_ONE_CONTROLLER
    prefix: str = field(default_factory=lambda: f"sl{os.getpid()}")

    def __enter__(self) -> Namespaces:
        _remove_orphans()
        try:
            self._build()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def full(self, name: str) -> str:
        """The machine-wide name of the namespace ``name``."""
        return f"{self.prefix}-{name}"

    def inside(self, name: str) -> list[str]:
        """The words before a command that run it in ``name`` and let it die with the driver; the pid is its own."""
        return ["nsenter", f"--net={_RUN / self.full(name)}", "--", "setpriv", "--pdeathsig", "KILL", "--"]

    def iptables(self, name: str, *words: str) -> str:
        return _run(["nsenter", f"--net={_RUN / self.full(name)}", "--", "iptables", "-w", "5", *words])

    def plug(self, name: str, *, is_in: bool) -> None:
        """Pulls the cable of a namespace, or puts it in again: without it nothing is answered, and nothing refused."""
        ip("-n", self.full(HUB), "link", "set", f"v-{name}", "up" if is_in else "down")

    def enter_hub(self) -> None:
        """Moves the calling process into the hub.

        Call it before any thread is started: a namespace belongs to a thread.
        """
        with (_RUN / self.full(HUB)).open() as handle:
            if ctypes.CDLL(None, use_errno=True).setns(handle.fileno(), _CLONE_NEWNET) != 0:
                code = ctypes.get_errno()
                raise OSError(code, f"setns: {os.strerror(code)}")

    def _build(self) -> None:
        for name in self.names:
            ip("netns", "add", self.full(name))
            ip("-n", self.full(name), "link", "set", "lo", "up")
        hub = self.full(HUB)
        ip("-n", hub, "link", "add", "br0", "type", "bridge")
        ip("-n", hub, "link", "set", "br0", "up")
        ip("-n", hub, "addr", "add", f"{ADDRESSES[HUB]}/24", "dev", "br0")
        for name in self.names:
            if name == HUB:
                continue
            own, address = self.full(name), ADDRESSES[name]
            ip("-n", hub, "link", "add", f"v-{name}", "type", "veth", "peer", "name", "eth0", "netns", own)
            ip("-n", hub, "link", "set", f"v-{name}", "master", "br0", "up")
            ip("-n", own, "addr", "add", f"{address}/24", "dev", "eth0")
            ip("-n", own, "link", "set", "eth0", "up")

    def remove(self) -> None:
        """Removes the namespaces, and with them bridge, links and rules; a missing one is not an error."""
        for name in self.names:
            if (_RUN / self.full(name)).exists():
                ip("netns", "del", self.full(name))


def _remove_orphans() -> None:
    """Removes the namespaces of drivers that were killed."""
    for path in _RUN.glob("sl*-*") if _RUN.exists() else ():
        match = _OURS.fullmatch(path.name)
        if match and not Path("/proc", match[1]).exists():
            ip("netns", "del", path.name)
