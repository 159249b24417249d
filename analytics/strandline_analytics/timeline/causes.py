"""Explains the causes of an export to people: whether a cause was planned, what it means, and what to do next.

Imports no Spark. Next steps link to headings of docs/OPERATIONS.md.

Invariant: an unknown cause counts as unplanned, and is shown by its name: looking into a harmless one costs a
minute, and missing a harmful one costs records.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MOVED = "reassign"
"""The cause of a change of ISR or leader at the end of a reassignment; it needs no attention."""

PLANNED = frozenset({"controlled_shutdown", MOVED, "preferred", "created"})
"""Causes of decisions that an operator requested."""

LOSSY = frozenset({"unclean_election", "unclean_recovery_timeout"})
"""Causes of decisions that may lose committed records."""

STALLED = "HW stalled"
UNDER_MIN = "under min ISR"
"""Kinds of stalls, for which the export has no cause: a member, or too few members, held up the high watermark."""

OLDER_COPY = "directory is an older copy, which forgot what it held"
WAIT_OVER = "the time to wait for the other logs was over"


@dataclass(frozen=True, slots=True)
class Meaning:
    """A cause in words, the next step, and the heading that explains it."""

    said: str
    todo: str
    heading: str

    @property
    def anchor(self) -> str:
        """The anchor of the heading, for links."""
        return re.sub(r"[^\w\- ]", "", self.heading.lower()).replace(" ", "-")


_OFFLINE, _UNDER_REPLICATED, _START = "Offline", "Under-replicated", "Start and stop"
_COUNT = "Tell the producers that must know, and count what was lost from the data."

MEANINGS = {
    "lag": Meaning(
        "its leader had not seen it caught up for replica.lag.time.max.ms",
        "Look whether its fetches stopped (S9: lag_stuck) or are too slow (lag_slow), then at its disk and network.",
        _UNDER_REPLICATED,
    ),
    "node_fenced": Meaning(
        "the controller did not hear the node any more: its process is gone, or cannot reach the controller",
        "Look at its exit code and last line, and start it again; it catches up by itself.",
        _UNDER_REPLICATED,
    ),
    "controlled_shutdown": Meaning(
        "the node was asked to stop", "Nothing, if it was meant; it joins again after its start.", _START
    ),
    "restart": Meaning(
        "a new process of the node registered, so whatever it led gets a new epoch",
        "If it was not restarted on purpose, look at the exit code of the process before.",
        "Exit codes",
    ),
    "new_disk": Meaning(
        "the node came with another data directory, and holds nothing of what it held",
        "Wait until its copy is whole; if the disk was not replaced on purpose, look for the old one.",
        "A wiped or replaced disk",
    ),
    "unclean_restart": Meaning(
        "the process before did not stop cleanly, so its last records may be missing",
        "Look at the exit code of the process before; the node catches up by itself.",
        "Exit codes",
    ),
    "directory_restored": Meaning(
        f"its {OLDER_COPY}",
        "Find out who put it back, and put back no other member of the same ISR: that loses committed records.",
        "Backup",
    ),
    "election": Meaning(
        "a node came that could lead, and ended the time without a leader",
        "Look what had left the partition without a leader.",
        _OFFLINE,
    ),
    "unclean_election": Meaning(
        "a replica leads that may lack committed records, for no complete one was there", _COUNT, _OFFLINE
    ),
    "unclean_recovery_timeout": Meaning(
        f"{WAIT_OVER} (unclean.recovery.timeout.ms), and a replica leads that may lack committed records",
        _COUNT,
        _OFFLINE,
    ),
    "refused_cut": Meaning(
        "a follower held committed records that its leader lacked, refused to cut them, and leads now",
        "Find out how the leader before lost them: its disk, or a directory that was put back.",
        "A wiped or replaced disk",
    ),
    "min_isr_change": Meaning("min.insync.replicas was changed", "Nothing, if it was meant.", "Topics"),
    "preferred": Meaning("the preferred leader was asked for", "Nothing.", "Topics"),
    MOVED: Meaning("the partition was moved on request", "Nothing, if it was meant.", "Moving replicas"),
    STALLED: Meaning(
        "records waited for a member of the ISR that did not take them, or for the leader's own disk",
        "Look at the disk and the network of the nodes that held it up.",
        "Looking",
    ),
    UNDER_MIN: Meaning(
        "the ISR was below its minimum, so nothing could be committed",
        "Bring replicas back; nothing else is needed.",
        "Under min ISR",
    ),
}

_PAUSED = "Look for what stopped it for so long: its garbage collector, its machine, or a disk that did not answer."

INFERRED_STEPS = {
    "node_stopped": MEANINGS["node_fenced"].todo,
    "node_paused": _PAUSED,
    "slow_replica": "Look at its disk, its processor and its network.",
    "slow_pair": "Look at the network between these two nodes.",
    "leader_side": "Look at this leader's network, threads and disk, before its followers'.",
}
"""The next steps for causes that an import inferred, by the name of the rule."""


def meaning(cause: str) -> Meaning:
    """The meaning of a cause."""
    unknown = Meaning(
        f"{cause.replace('_', ' ')}: a cause that this version does not know", "Look at its events below.", "Looking"
    )
    return MEANINGS.get(cause, unknown)
