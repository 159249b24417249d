"""What a machine must provide for a scenario, and the exact sentence about what it lacks.

Invariant: a facility is tested, not guessed; a scenario whose facility is missing is skipped by name, never passed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Facility:
    """Something of the machine that a fault needs."""

    name: str
    lacking: Callable[[], str | None]
    """What is missing, in one sentence; None if it is there."""


def missing(facilities: Iterable[Facility]) -> list[str]:
    """One sentence for each facility that this machine lacks."""
    found = ((facility.name, facility.lacking()) for facility in facilities)
    return [f"{name}: {sentence}" for name, sentence in found if sentence]


def program(command: str, package: str) -> str | None:
    """Reports what is missing if ``command`` cannot be found, and which Debian ``package`` has it."""
    if shutil.which(command):
        return None
    return f"the command {command} is missing (as root: make packages, or on Debian: apt-get install {package})"


def _root() -> str | None:
    return None if os.geteuid() == 0 else "root is needed, and this is user id " + str(os.geteuid())


def _works(command: list[str]) -> str | None:
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)
    if done.returncode == 0:
        return None
    return f"`{' '.join(command)}` failed: {(done.stderr or done.stdout).strip()[:200]}"


def _namespaces() -> str | None:
    name = f"sl{os.getpid()}-try"
    lacking = (
        _root() or program("ip", "iproute2") or program("nsenter", "util-linux") or _works(["ip", "netns", "add", name])
    )
    if lacking:
        return lacking
    try:
        return _works(["ip", "-n", name, "link", "add", "br0", "type", "bridge"]) or _works(
            ["ip", "-n", name, "link", "add", "v0", "type", "veth", "peer", "name", "v1"]
        )
    finally:
        _works(["ip", "netns", "del", name])


def _iptables() -> str | None:
    lacking = _root() or program("iptables", "iptables")
    if lacking:
        return lacking
    return _works(["unshare", "--net", *["iptables", "-A", "INPUT", "-s", "192.0.2.1", "-j", "DROP"]])


NAMESPACES = Facility(name="network namespaces", lacking=_namespaces)
IPTABLES = Facility(name="iptables", lacking=_iptables)
ETCD = Facility(name="etcd", lacking=lambda: program("etcd", "etcd-server") or program("etcdctl", "etcd-client"))
