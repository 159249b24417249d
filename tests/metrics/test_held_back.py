"""How long an LSO has been held back, computed from samples of LSO and HW alone."""

from __future__ import annotations

from typing import Any, cast

from strandline.core.log.replica_log import ReplicaLog
from strandline.core.types import Offset, TopicPartition
from strandline.metrics.node import HeldBack


class _Log:
    def __init__(self, partition: int = 0) -> None:
        self.tp = TopicPartition("t", partition)
        self.lso = self.hw = Offset(0)

    def at(self, lso: int, hw: int) -> list[ReplicaLog]:
        self.lso, self.hw = Offset(lso), Offset(hw)
        return [cast(Any, self)]


def test_an_lso_at_the_hw_is_not_held_back() -> None:
    """However long the log is idle."""
    held, log = HeldBack(), _Log()
    held.look(log.at(5, 5), 0)

    assert held.longest_s(log.at(5, 5), 60_000) == 0


def test_the_time_is_that_of_one_transaction() -> None:
    """A HW that goes on changes nothing; an LSO that goes on to the next open transaction begins again."""
    held, log = HeldBack(), _Log()
    held.look(log.at(5, 10), 1_000)
    held.look(log.at(5, 90), 4_000)
    assert held.longest_s(log.at(5, 90), 5_000) == 4.0
    assert held.longest_s(log.at(7, 90), 5_000) == 0

    held.look(log.at(7, 90), 6_000)

    assert held.longest_s(log.at(7, 95), 8_000) == 2.0


def test_the_longest_of_all_partitions_counts() -> None:
    """One that is not led any more is forgotten."""
    held, first, second = HeldBack(), _Log(0), _Log(1)
    held.look(first.at(0, 1), 0)
    held.look([*first.at(0, 1), *second.at(0, 1)], 3_000)
    assert held.longest_s([*first.at(0, 1), *second.at(0, 1)], 4_000) == 4.0

    held.look(second.at(0, 1), 5_000)

    assert held.longest_s([*first.at(0, 1), *second.at(0, 1)], 6_000) == 3.0
