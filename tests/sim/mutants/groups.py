"""Mutants of groups: who holds a partition and for how long, and when a coordinator answers."""

from __future__ import annotations

from typing import Any

from mutants.mutant import Mutant, Real, Swap
from mutants.verdict import Layer

from strandline.client.groups.member import Member
from strandline.core.coordinator.machine import Context
from strandline.core.coordinator.shard import Shard
from strandline.core.coordinator.waiting import Scope, Waiting
from strandline.core.groups import heartbeats
from strandline.core.groups.group import Changes, Owners
from strandline.core.groups.machine import GroupMachine
from strandline.core.groups.records import CurrentValue
from strandline.core.groups.timers import Timers
from strandline.core.log.leader import LeaderReplica
from strandline.core.messages import FetchPartition
from strandline.core.types import Offset

MUTANTS: tuple[Mutant, ...] = ()


# R51: a partition is given to a member while another still holds it.


def _gives_at_once(real: Real, *given: Any) -> bool:
    return True


MUTANTS += (
    Mutant(
        number="R51",
        name="given before it was given up",
        broken="A member is given a partition of its target at once, even if another member holds it.",
        source="G17; the classic protocol's cooperative assignor does this where a report is missing (KIP-792)",
        tests=("tests/core/groups/test_heartbeats.py",),
        layers=(Layer.TESTS, Layer.SEEDS),
        profiles=("members",),
        swaps=(Swap(Owners, "is_free_for", _gives_at_once),),
    ),
)


# R52: the entry of a partition that returns to the member it is asked back from is lost.


def _patches(real: Real, self: Owners, member_id: str, before: CurrentValue | None, after: CurrentValue | None) -> None:
    for tp, _ in before.held if before else ():
        self._owners.pop(tp, None)
    for tp, epoch in after.held if after else ():
        self._owners[tp] = (member_id, epoch)
    if before is None or after is None:
        return
    for tp in {each.tp for each in before.revoking} & {each.tp for each in after.assigned}:
        real.differs()
        del self._owners[tp]


MUTANTS += (
    Mutant(
        number="R52",
        name="owner of a returned partition lost",
        broken="What was being revoked is taken out of the map although the member was given it again.",
        source="G18; KAFKA-16147",
        tests=("tests/core/groups/test_fold.py",),
        layers=(Layer.TESTS,),
        swaps=(Swap(Owners, "replace", _patches, pure=False),),
    ),
)


# R54, R55, R56, R83: coordinators that answer too early, serve too early, or throw away what is still needed.

_FOLDER = "tests/core/coordinator"


def _nothing_to_wait_for(real: Real, self: Waiting, scope: Scope) -> Offset | None:
    return None


def _settled(real: Real, self: Shard) -> bool:
    return True


def _replaced(real: Real, self: Shard, end: Offset) -> bool:
    return True


def _by_arrival(real: Real, self: LeaderReplica, fetch: FetchPartition) -> int:
    return self.barrier or 0


MUTANTS += (
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


# R84: a copy of a heartbeat that comes late is taken for a new one.


def _never_late(real: Real, self: Timers, member: tuple[str, str], sequence: int | None) -> bool:
    real.differs()
    return False


MUTANTS += (
    Mutant(
        number="R84",
        name="late copies of heartbeats are taken",
        broken="A member gives up, by a report from before it was given it, what it still reads (TR41).",
        source="G19",
        tests=("tests/core/groups/test_commits.py",),
        layers=(Layer.TESTS,),
        swaps=(Swap(Timers, "is_late_heartbeat", _never_late, pure=False),),
    ),
)


# R85: partitions of a member that is too slow are free as soon as its rebalance time-out is over.


def _frees_at_once(real: Real, changes: Changes, member_id: str) -> None:
    real.differs()
    heartbeats.remove(changes, member_id)


MUTANTS += (
    Mutant(
        number="R85",
        name="free before the lease ends",
        broken="Another member is given partitions that a removed one still reads.",
        source="G21; Kafka's own behaviour",
        tests=("tests/sim/test_rebalances_search.py", "tests/core/groups/test_heartbeats.py"),
        layers=(Layer.TESTS, Layer.SEEDS),
        profiles=("members",),
        swaps=(Swap(heartbeats, "fence", _frees_at_once, pure=False),),
    ),
)


# 74: a static member that leaves for a restart gets the group a new epoch.


def _raises(real: Real, changes: Changes, member_id: str) -> None:
    real.differs()
    real(changes, member_id)
    changes.raise_epoch()


MUTANTS += (
    Mutant(
        number="74",
        name="static leave raises the epoch",
        broken="A restart of a static member leads to a new target.",
        source="G21; KIP-345",
        tests=("tests/core/groups/test_static_members.py",),
        layers=(Layer.TESTS,),
        swaps=(Swap(heartbeats, "step_aside", _raises, pure=False),),
    ),
)


# 75: the time that a coordinator needs to load counts against the members.


def _begins_in_the_past(real: Real, self: GroupMachine, context: Context) -> None:
    real.differs()
    known = dict(self.timers.session_ends)
    real(self, context)
    for member in self.timers.session_ends:
        self.timers.session_ends[member] = known.get(member, context.now_ms)


MUTANTS += (
    Mutant(
        number="75",
        name="a load gives no time",
        broken="Members that could not reach a coordinator are removed for their silence.",
        source="G8",
        tests=("tests/core/groups/test_heartbeats.py",),
        layers=(Layer.TESTS,),
        swaps=(Swap(GroupMachine, "excuse", _begins_in_the_past, pure=False),),
    ),
)


# 76: a consumer goes on giving records when the coordinator may have given its partitions to another.


def _for_ever(real: Real, self: Member, now_ms: float) -> bool:
    real.differs()
    return True


MUTANTS += (
    Mutant(
        number="76",
        name="a client reads on after its lease",
        broken="Two members work on the records of one partition.",
        source="G22",
        tests=("tests/client/test_group_members.py",),
        layers=(Layer.TESTS,),
        swaps=(Swap(Member, "has_lease", _for_ever, pure=False),),
    ),
)
