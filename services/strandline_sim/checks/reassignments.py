"""Checks from one decision to the next whether a change of a partition's replicas lost a place or a copy (I25).

Invariant: this uses no rule of `core.control.reassignment`: a check of a rule must not use that rule.
"""

from __future__ import annotations

from strandline.core.messages import PartitionImage


def reassignment_fault(before: PartitionImage | None, after: PartitionImage) -> str | None:
    """Why the step from ``before`` to ``after`` breaks I25; None if it does not."""
    replicas = set(after.replicas)
    places = {*after.isr, *after.elr, *(() if after.leader is None else (after.leader,))}
    if strangers := sorted(places - replicas):
        return f"nodes {strangers} lead, or are in ISR or ELR, and are not replicas"
    if before is None or after.original or replicas == (original := set(before.original or before.replicas)):
        # Nothing ended, or it was cancelled, which an operator may force.
        return None
    if missing := sorted(replicas - original - set(after.isr)):
        return f"a reassignment ended although nodes {missing}, which it added, are not in the ISR"
    if len(after.isr) < (needed := min(after.min_isr, len(replicas))):
        return f"a reassignment ended with {len(after.isr)} of {needed} copies in sync"
    return None
