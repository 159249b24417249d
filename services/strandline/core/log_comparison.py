"""Decides which of several reported logs is certain to hold everything committed, if one of them does (M65).

Invariant: with at least one log among them that lost nothing, the chosen log holds every committed record. Losses
may be a tail of any length or the return of the whole directory to an earlier state.

Why comparing the last epoch and the LEO, as Raft does, is not enough: the high watermark may commit records of
older epochs, so a log that ends in a newer epoch may lack them. Two facts decide instead. Equal (offset, epoch) means
equal logs up to there (I2), so a prefix is recognized and the longer log wins. If two logs forked, the *reconciled
epoch* decides: a log that holds a record committed in leader epoch c was counted in c, so it was reconciled in c or
later; a log reconciled in c or later held, at that moment, all that was committed before, and so cannot differ from
it there. A fork below a committed record therefore leaves the log that lacks the record with the lower epoch.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.core.epochs import EpochCache
from strandline.core.messages import ReplicaLogInfo
from strandline.core.types import Offset


def extends(longer: ReplicaLogInfo, shorter: ReplicaLogInfo) -> bool:
    """Whether ``longer`` holds all of ``shorter`` and more."""
    if shorter.leo >= longer.leo:
        return False
    if shorter.leo <= longer.log_start_offset:
        # A log start moves only below the high watermark, so all that ``shorter`` could add was committed and deleted.
        return True
    last = Offset(shorter.leo - 1)
    written_by = EpochCache(shorter.epochs).epoch_of(last)
    # Without an epoch nothing is left of ``shorter`` but its position.
    return written_by is None or EpochCache(longer.epochs).epoch_of(last) == written_by


def most_complete(logs: Sequence[ReplicaLogInfo]) -> int:
    """The index of the log to elect among at least one.

    The highest reconciled epoch, of equal ones the longest, is the candidate; while others extend the candidate,
    the choice is made again among these. A log that holds everything committed is never left behind on this way: it
    either extends the candidate, or the candidate holds everything committed as well.
    """
    left = list(range(len(logs)))
    while True:
        candidate = max(left, key=lambda index: _rank(logs[index]))
        left = [index for index in left if extends(logs[index], logs[candidate])]
        if not left:
            return candidate


def _rank(log: ReplicaLogInfo) -> tuple[bool, int, int, int, int]:
    # Only a log of an older release does not know where it was reconciled; then its last epoch has to do.
    known = log.reconciled_epoch is not None
    last_epoch = log.epochs[-1].epoch if log.epochs else 0
    # Of logs that are equal otherwise, one that went back in time may hold records again that were deleted (I27).
    return known, log.reconciled_epoch or 0, last_epoch, log.leo, log.log_start_offset
