"""The feature levels that this release speaks: numbers for what processes of two releases must agree on.

Invariant: a level is used only while every live node and the controller speak it; a release that raises HIGHEST
still speaks the level before, or it cannot join a cluster that is being upgraded node by node.
"""

from __future__ import annotations

from collections.abc import Iterable

LOWEST = 1
HIGHEST = 4

REPORTED_ELECTIONS = 2
"""From this level on every live node reports its logs on request, so an election may wait for reports (M65)."""

GROUPS = 3
"""From this level on every live node can coordinate groups, and repeats read barriers (G10)."""

TRANSACTIONS = 4
"""From this level on every live node can coordinate transactions, and leaders ask their coordinators (X9)."""


def shared(spoken: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """The lowest and the highest level that this release shares with processes; ``spoken`` is theirs of each."""
    both = [(LOWEST, HIGHEST), *spoken]
    return max(low for low, _ in both), min(high for _, high in both)
