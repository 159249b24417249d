"""Reads and shows causes that an import inferred for an event: always labelled, never in place of a recorded one.

Imports no Spark.

Invariant: the text begins with the word "Inferred", and says what would contradict the inference; rules that explain
the same equally well are shown together, as a tie.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from strandline.export.schema import INFERRED
from strandline_analytics.timeline.event import Event
from strandline_analytics.timeline.sentences import sentence

_BESIDE = frozenset({"controller_silent", "fast_restart", "young_leader"})
"""Rules that describe the record itself rather than explain it."""


class Inference(NamedTuple):
    """One cause that a rule found."""

    rule: str
    subject: str
    says: str
    contradiction: str
    evidence: tuple[str, ...]
    strength: int
    """The number of changes that it explains."""

    @property
    def nodes(self) -> tuple[int, ...]:
        """The nodes that its subject names."""
        return tuple(map(int, re.findall(r"\d+", self.subject)))


def inferences(event: Event) -> tuple[Inference, ...]:
    """The inferences about an event; empty if there are none, or if they cannot be read."""
    try:
        said = json.loads(event.ext.get(INFERRED, "[]"))
        return tuple(
            Inference(
                str(one["rule"]),
                str(one["subject"]),
                str(one["says"]),
                str(one["contradiction"]),
                tuple(map(str, one["evidence"])),
                int(one["strength"]),
            )
            for one in said
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return ()


def with_inferences(event: Event) -> str:
    """The event's sentence, followed by what was inferred."""
    found = inferences(event)
    return sentence(event) + (f". {short_text(found)}" if found else "")


def competing(found: Sequence[Inference]) -> tuple[Inference, ...]:
    """The inferences that explain the event; several of them are a tie."""
    return tuple(one for one in found if one.rule not in _BESIDE)


def in_short(found: Sequence[Inference]) -> str:
    """Inferred causes without their reasons: ``inferred: node 1 stood still``."""
    return "inferred: " + "; or ".join(one.says.partition(": ")[0] for one in found)


def short_text(found: Sequence[Inference]) -> str:
    """``Inferred: ...`` for one cause; a tie names all."""
    causes = competing(found)
    tie = [f"Inferred, a tie: {'; or '.join(one.says for one in causes)}"] if len(causes) > 1 else []
    return ". ".join(tie + [f"Inferred: {one.says}" for one in found if not tie or one not in causes])


def long_text(one: Inference, *, is_tie: bool) -> str:
    """One line for an explanation: the inference, what would contradict it, and the evidence."""
    label = "Inferred, one of a tie" if is_tie else "Inferred"
    return (
        f"{label}: {one.says} [{one.rule}]. Against it would speak: {one.contradiction}. "
        f"Evidence: {', '.join(one.evidence)}"
    )


# ---- fences
# Finds the fence that a change of leader followed from.
#
# Invariant: both are the controller's events, compared by its clock; the fence may be in the same decision.

NEAR_US = 60_000_000
"""A fence belongs to the loss of a leader that follows it within this time, us (S19)."""


def fence_before(change: Event, events: Iterable[Event]) -> Event | None:
    """The latest fence of the old leader shortly before a LEADER_CHANGE; None for a planned change."""
    old_leader = change.get("old_leader")
    fences = [
        e
        for e in events
        if e.event_type == "NODE_SESSION"
        and e.get("phase") == "fence"
        and e.cluster_id == change.cluster_id
        and e.get("subject_node_id") == old_leader
        and 0 <= change.t_us - e.t_us <= NEAR_US
    ]
    return max(fences, key=lambda e: e.t_us, default=None)
