"""R54, R55, R56, R83: coordinators that answer too early, serve too early, or throw away what is still needed."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap
from mutants.verdict import Layer

from strandline.core.coordinator.shard import Shard
from strandline.core.coordinator.waiting import Scope, Waiting
from strandline.core.log.leader import LeaderReplica
from strandline.core.messages import FetchPartition
from strandline.core.types import Offset

_FOLDER = "tests/core/coordinator"


def _nothing_to_wait_for(real: Real, self: Waiting, scope: Scope) -> Offset | None:
    return None


def _settled(real: Real, self: Shard) -> bool:
    return True


def _replaced(real: Real, self: Shard, end: Offset) -> bool:
    return True


def _by_arrival(real: Real, self: LeaderReplica, fetch: FetchPartition) -> int:
    return self.barrier or 0


MUTANTS = (
    Mutant(
        number="R54",
        name="answers before the HW",
        broken="A coordinator answers as soon as it has appended what the answer depends on.",
        source="G5",
        tests=(f"{_FOLDER}/test_answers.py::test_a_write_is_answered_when_the_hw_has_passed_it",),
        profiles=("groups",),
        layers=(Layer.TESTS, Layer.SEEDS),
        swaps=(Swap(Waiting, "end_for", _nothing_to_wait_for),),
    ),
    Mutant(
        number="R55",
        name="a shard serves before it is settled",
        broken="A new coordinator serves before the HW has reached the start of its epoch.",
        source="G6",
        tests=(f"{_FOLDER}/test_answers.py::test_a_new_leader_serves_when_the_hw_has_reached_its_epoch",),
        layers=(Layer.TESTS,),
        swaps=(Swap(Shard, "is_settled", _settled),),
    ),
    Mutant(
        number="R56",
        name="trim before the sweep is committed",
        broken="The log start moves when the last key was written again, whatever the HW is.",
        source="G9",
        tests=(f"{_FOLDER}/test_sweep.py::test_nothing_is_cut_off_before_the_sweep_is_committed",),
        layers=(Layer.TESTS,),
        swaps=(Swap(Shard, "is_replaced", _replaced),),
    ),
    Mutant(
        number="R83",
        name="a read barrier passed by arrival",
        broken="A fetch that arrives after a read barrier has begun passes it, though it was sent before.",
        source="G10; TR40",
        tests=(f"{_FOLDER}/test_answers.py::test_tr40_a_fetch_from_before_the_election_proves_nothing",),
        layers=(Layer.TESTS,),
        swaps=(Swap(LeaderReplica, "barrier_repeated", _by_arrival),),
    ),
)
