"""Faults of the network: packets of one direction of one link are dropped by iptables in the receiver's namespace.

Invariant: every rule carries this fault's number as a comment, and undoing removes exactly those; the count of dropped
packets is read before a rule is removed, because a cut that dropped nothing had no effect.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.cluster import CONTROLLER, Cluster, namespace
from harness.namespaces import ADDRESSES
from harness.scenario import Fault

_numbers = itertools.count(1)
_DROPPED = re.compile(r"^\s*(\d+)\s+\d+\s+DROP\b.*?/\* (cut-\d+) \*/", re.MULTILINE)


@dataclass(slots=True)
class Cut(Fault):
    """Drops everything from ``sender`` to ``receiver`` (names of namespaces), one way, for each pair in ``links``."""

    links: list[tuple[str, str]]
    dropped: int = 0
    """Packets dropped; known after `undo`."""
    _rules: list[tuple[str, list[str]]] = field(default_factory=list, repr=False)

    async def apply(self, cluster: Cluster) -> None:
        mark = f"cut-{next(_numbers)}"
        for sender, receiver in self.links:
            rule = ["INPUT", "-s", ADDRESSES[sender], "-m", "comment", "--comment", mark, "-j", "DROP"]
            cluster.namespaces.iptables(receiver, "-I", *rule)
            self._rules.append((receiver, rule))

    async def undo(self, cluster: Cluster) -> None:
        marks = {rule[rule.index("--comment") + 1] for _, rule in self._rules}
        for receiver in {receiver for receiver, _ in self._rules}:
            shown = cluster.namespaces.iptables(receiver, "-L", "INPUT", "-v", "-x", "-n")
            self.dropped += sum(int(count) for count, mark in _DROPPED.findall(shown) if mark in marks)
        while self._rules:
            receiver, rule = self._rules.pop()
            cluster.namespaces.iptables(receiver, "-D", *rule)

    @property
    def effects(self) -> Mapping[str, int]:
        return {"dropped_packets": self.dropped}

    def described(self) -> str:
        return f"Cut({', '.join(f'{sender}->{receiver}' for sender, receiver in self.links)})"


def both_ways(one: str, other: str) -> list[tuple[str, str]]:
    """The two directions of a link."""
    return [(one, other), (other, one)]


def one_way(node: int, direction: str) -> list[tuple[str, str]]:
    """All links between a node and the other processes of the cluster: "mute" loses what it sends, "deaf" the rest."""
    own, others = namespace(node), [CONTROLLER, *(namespace(each) for each in (1, 2, 3) if each != node)]
    return [(own, other) if direction == "mute" else (other, own) for other in others]
