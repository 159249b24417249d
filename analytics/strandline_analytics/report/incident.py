"""An incident of a report: its decisions, truncations and stalls, the nodes involved and the reasons.

Invariant: all of it comes from its events; nothing is computed a second time, and an inference is never a cause.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from strandline_analytics.timeline.causes import LOSSY, PLANNED, STALLED, UNDER_MIN
from strandline_analytics.timeline.event import Event, Stall
from strandline_analytics.timeline.inferred import Inference, competing, in_short, inferences

Key = tuple[str, str | None, int | None]


@dataclass(slots=True, kw_only=True)
class Incident:
    """Events that belong together. ``began_us`` and ``ended_us``: the first and last decision; recovery comes later."""

    number: int
    cluster_id: str
    began_us: int
    ended_us: int
    chain: Mapping[str, Any] | None = None
    shrinks: list[Event] = field(default_factory=list)
    leader_changes: list[Event] = field(default_factory=list)
    truncations: list[Event] = field(default_factory=list)
    stalls: list[Stall] = field(default_factory=list)
    recovered_us: int | None = None
    """When the last of its partitions had its whole ISR back; None if that is not within the input."""

    @property
    def id(self) -> str:
        """The anchor for links to the incident."""
        return f"incident-{self.number}"

    @property
    def keys(self) -> list[Key]:
        """The partitions that the incident touched."""
        return sorted({e.key for e in [*self.shrinks, *self.leader_changes]} | {s.key for s in self.stalls}, key=str)

    @property
    def label(self) -> str:
        """The kind of its chain by S17; empty if it has several kinds, or no chain."""
        return str((self.chain or {}).get("label") or "")

    @property
    def changes(self) -> list[Event]:
        """The decisions of the incident: shrinks, then changes of leaders."""
        return [*self.shrinks, *self.leader_changes]

    @property
    def causes(self) -> Counter[str]:
        """The number of decisions by cause; a shrink and a change of leader in one partition epoch count once."""
        decisions = dict.fromkeys(
            (event.key, event.partition_epoch, event.cause or "unknown") for event in self.changes
        )
        return Counter(cause for _, _, cause in decisions)

    @property
    def is_planned(self) -> bool:
        """Whether the whole incident was planned."""
        return bool(self.causes) and set(self.causes) <= PLANNED

    @property
    def elections(self) -> list[Event]:
        """Leader changes that gave a partition a leader."""
        return [event for event in self.leader_changes if (event.get("new_leader") or 0) >= 0]

    @property
    def removed_nodes(self) -> Counter[int]:
        """How often each node was removed from an ISR."""
        gone = (set(e.get("old_isr") or ()) - set(e.get("new_isr") or ()) for e in self.shrinks)
        return Counter(node for nodes in gone for node in nodes)

    @property
    def lost_leaders(self) -> Counter[int]:
        """How often each node's leadership was lost."""
        before = [event.get("old_leader") for event in self.leader_changes]
        return Counter(node for node in before if node is not None and node >= 0)

    @property
    def inferred(self) -> tuple[Inference, ...]:
        """What an import inferred about most of its shrinks, several in case of a tie; empty if it inferred nothing."""
        found = Counter(causes for event in self.shrinks if (causes := competing(inferences(event))))
        return found.most_common(1)[0][0] if found else ()

    @property
    def culprits(self) -> Counter[int]:
        """The nodes it is about: those named by an inferred cause, else those that left an ISR, else those whose
        leadership was lost, else those that held the HW up."""
        if len(self.inferred) == 1:
            return Counter({node: len(self.shrinks) for node in self.inferred[0].nodes})
        if self.shrinks:
            return self.removed_nodes
        if self.lost_leaders:
            return self.lost_leaders
        return Counter(node for stall in self.stalls if not stall.is_under_min for node in stall.blockers)

    @property
    def why(self) -> list[str]:
        """Its causes: first those that may lose records, then by frequency, then the kinds of its stalls."""
        named = sorted((cause for cause, _ in self.causes.most_common()), key=lambda cause: cause not in LOSSY)
        stalled = {UNDER_MIN if stall.is_under_min else STALLED for stall in self.stalls}
        return named + sorted(stalled)

    @property
    def reason(self) -> str:
        """The reason why it began, in a few words."""
        if self.inferred:
            return in_short(self.inferred)
        return next((cause for cause in self.why if cause not in LOSSY), self.why[0]).replace("_", " ")

    @property
    def cut_records(self) -> int:
        """The number of records truncated from logs, over all copies."""
        return sum(event.cut_records or 0 for event in self.truncations)

    @property
    def committed_cut(self) -> int:
        """The number of records truncated below the replica's own HW, if that was known."""
        return sum(event.get("committed_cut") or 0 for event in self.truncations)

    @property
    def blind_cuts(self) -> int:
        """The number of truncations by replicas that did not know their own HW."""
        return sum(event.get("committed_cut") is None for event in self.truncations)

    @property
    def is_unclean(self) -> bool:
        """Whether a leader was elected that may lack committed records."""
        return any(event.get("election_type") == "unclean" for event in self.leader_changes)

    @property
    def is_severe(self) -> bool:
        """Whether committed records were lost, or may have been."""
        return self.is_unclean or bool(self.committed_cut)

    def take(self, other: Incident) -> None:
        """Merge the other incident into this one."""
        self.shrinks += other.shrinks
        self.leader_changes += other.leader_changes
        self.began_us, self.ended_us = min(self.began_us, other.began_us), max(self.ended_us, other.ended_us)
        if self.label != other.label:
            self.chain = None
