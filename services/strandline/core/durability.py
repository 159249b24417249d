"""Decides how much of a log counts as durable (M54, M55).

Invariant: ``point`` <= LEO, and everything below it survives a power loss. A commit covers what was
appended when it was *issued*; a truncation between issue and completion takes away from what it covers.
"""

from __future__ import annotations

from strandline.core.types import Durability, Offset, Rules


def loss_warning(rules: Rules) -> str | None:
    """What ``durability=page-cache`` costs, for logs and screens; None under ``fsync``."""
    if rules.durability is Durability.FSYNC:
        return None
    return (
        "durability=page-cache acknowledges records before any disk holds them: a power loss of as many machines as "
        "acknowledged a record loses it; durability=fsync does not"
    )


class DurablePoint:
    """DUR of one log: how far completed commits reach, and whether one is under way."""

    __slots__ = ("_lowest_cut", "_under_way", "point")

    def __init__(self, point: Offset) -> None:
        self.point = point
        # Offset up to which the commit under way will cover; None if none is under way.
        self._under_way: Offset | None = None
        # Lowest truncation since that commit was issued; None if there was none.
        self._lowest_cut: Offset | None = None

    def maybe_issue(self, leo: Offset) -> bool:
        """Whether a commit shall be issued now: something is not durable and none is under way.

        One commit serves every append that waited (group commit): what arrives meanwhile is covered by the next.
        """
        if self._under_way is not None or self.point >= leo:
            return False
        self._under_way, self._lowest_cut = leo, None
        return True

    def complete(self, issued_leo: Offset) -> bool:
        """The commit issued at ``issued_leo`` succeeded: DUR := max(DUR, min(LEO at issue, every cut since)).

        A completion that does not name the commit under way (a closed log's, a final flush) proves nothing here.
        Returns whether DUR rose.
        """
        if self._under_way is None or self._under_way != issued_leo:
            return False
        covered = self._under_way if self._lowest_cut is None else min(self._under_way, self._lowest_cut)
        self._under_way, self._lowest_cut = None, None
        if covered <= self.point:
            return False
        self.point = covered
        return True

    def truncated(self, offset: Offset) -> None:
        """The log was cut to ``offset``: DUR := min(DUR, offset), at once."""
        self.point = min(self.point, offset)
        if self._under_way is not None:
            self._lowest_cut = offset if self._lowest_cut is None else min(self._lowest_cut, offset)

    def restarted(self, offset: Offset) -> None:
        """The log was thrown away and begins, empty and durable, at ``offset``."""
        if self._under_way is not None:
            # The commit under way covers bytes that no longer exist; it must not cover new ones.
            self._lowest_cut = Offset(0)
        self.point = offset
