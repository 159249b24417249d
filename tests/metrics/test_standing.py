"""The age of the oldest record above the HW, computed from samples of log end and HW alone."""

from __future__ import annotations

from typing import Any, cast

from strandline.core.log.replica_log import ReplicaLog
from strandline.core.types import Offset, TopicPartition
from strandline.metrics.node import StandingRecords


class _Log:
    def __init__(self) -> None:
        self.tp = TopicPartition("t", 0)
        self.leo = self.hw = Offset(0)

    def at(self, hw: int, leo: int) -> list[ReplicaLog]:
        self.hw, self.leo = Offset(hw), Offset(leo)
        return [cast(Any, self)]


def test_nothing_above_the_hw_has_no_age() -> None:
    """A committed log is 0 seconds behind, however long it is idle."""
    standing, log = StandingRecords(), _Log()
    standing.look(log.at(5, 5), 0)

    assert standing.oldest_s(log.at(5, 5), 60_000) == 0


def test_the_age_is_that_of_the_oldest_record() -> None:
    """Newer appends change nothing; a HW that passes the oldest leaves the next."""
    standing, log = StandingRecords(), _Log()
    standing.look(log.at(0, 10), 1_000)
    standing.look(log.at(0, 20), 2_000)

    assert standing.oldest_s(log.at(0, 20), 5_000) == 4.0
    assert standing.oldest_s(log.at(10, 20), 5_000) == 3.0
    assert standing.oldest_s(log.at(20, 20), 5_000) == 0


def test_what_is_remembered_is_bounded() -> None:
    """A HW that does not move for an hour under load keeps its age and a few hundred marks."""
    standing, log = StandingRecords(), _Log()
    for i in range(10_000):
        standing.look(log.at(0, i + 1), i * 250)

    assert standing.oldest_s(log.at(0, 10_000), 2_500_000) == 2_500
    assert sum(map(len, standing._marks.values())) <= 256


def test_what_is_not_led_any_more_is_forgotten() -> None:
    """A partition that comes back starts again."""
    standing, log = StandingRecords(), _Log()
    standing.look(log.at(0, 10), 1_000)
    standing.look([], 2_000)
    standing.look(log.at(0, 10), 9_000)

    assert standing.oldest_s(log.at(0, 10), 10_000) == 1.0
