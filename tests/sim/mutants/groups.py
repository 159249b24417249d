"""Mutants of groups: who holds a partition and for how long, and when a coordinator answers."""

from __future__ import annotations

from typing import Any

from mutants.mutant import Real, mutant

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


@mutant(Owners, "is_free_for", tests="tests/core/groups/test_heartbeats.py", profiles="members", layers="tests seeds")
def _gives_at_once(real: Real, *given: Any) -> bool:
    """R51: given before it was given up
    (G17; the classic protocol's cooperative assignor does this where a report is missing (KIP-792)).

    A member is given a partition of its target at once, even if another member holds it.
    """
    return True


@mutant(Owners, "replace", tests="tests/core/groups/test_fold.py", layers="tests", pure=False)
def _patches(real: Real, self: Owners, member_id: str, before: CurrentValue | None, after: CurrentValue | None) -> None:
    """R52: owner of a returned partition lost (G18; KAFKA-16147).

    What was being revoked is taken out of the map although the member was given it again.
    """
    for tp, _ in before.held if before else ():
        self._owners.pop(tp, None)
    for tp, epoch in after.held if after else ():
        self._owners[tp] = (member_id, epoch)
    if before is None or after is None:
        return
    for tp in {each.tp for each in before.revoking} & {each.tp for each in after.assigned}:
        real.differs()
        del self._owners[tp]


# R54, R55, R56, R83: coordinators that answer too early, serve too early, or throw away what is still needed.

_FOLDER = "tests/core/coordinator"


@mutant(
    Waiting,
    "end_for",
    tests=f"{_FOLDER}/test_answers.py::test_a_write_is_answered_when_the_hw_has_passed_it",
    profiles="groups",
    layers="tests seeds",
)
def _nothing_to_wait_for(real: Real, self: Waiting, scope: Scope) -> Offset | None:
    """R54: answers before the HW (G5).

    A coordinator answers as soon as it has appended what the answer depends on.
    """
    return None


@mutant(
    Shard,
    "is_settled",
    tests=f"{_FOLDER}/test_answers.py::test_a_new_leader_serves_when_the_hw_has_reached_its_epoch",
    layers="tests",
)
def _settled(real: Real, self: Shard) -> bool:
    """R55: a shard serves before it is settled (G6).

    A new coordinator serves before the HW has reached the start of its epoch.
    """
    return True


@mutant(
    Shard,
    "is_replaced",
    tests=f"{_FOLDER}/test_sweep.py::test_nothing_is_cut_off_before_the_sweep_is_committed",
    layers="tests",
)
def _replaced(real: Real, self: Shard, end: Offset) -> bool:
    """R56: trim before the sweep is committed (G9).

    The log start moves when the last key was written again, whatever the HW is.
    """
    return True


@mutant(
    LeaderReplica,
    "barrier_repeated",
    tests=f"{_FOLDER}/test_answers.py::test_tr40_a_fetch_from_before_the_election_proves_nothing",
    layers="tests",
)
def _by_arrival(real: Real, self: LeaderReplica, fetch: FetchPartition) -> int:
    """R83: a read barrier passed by arrival (G10; TR40).

    A fetch that arrives after a read barrier has begun passes it, though it was sent before.
    """
    return self.barrier or 0


@mutant(Timers, "is_late_heartbeat", tests="tests/core/groups/test_commits.py", layers="tests", pure=False)
def _never_late(real: Real, self: Timers, member: tuple[str, str], sequence: int | None) -> bool:
    """R84: late copies of heartbeats are taken (G19).

    A member gives up, by a report from before it was given it, what it still reads (TR41).
    """
    real.differs()
    return False


@mutant(
    heartbeats,
    "fence",
    tests="tests/sim/test_rebalances_search.py tests/core/groups/test_heartbeats.py",
    profiles="members",
    layers="tests seeds",
    pure=False,
)
def _frees_at_once(real: Real, changes: Changes, member_id: str) -> None:
    """R85: free before the lease ends (G21; Kafka's own behaviour).

    Another member is given partitions that a removed one still reads.
    """
    real.differs()
    heartbeats.remove(changes, member_id)


@mutant(heartbeats, "step_aside", tests="tests/core/groups/test_static_members.py", layers="tests", pure=False)
def _raises(real: Real, changes: Changes, member_id: str) -> None:
    """74: static leave raises the epoch (G21; KIP-345).

    A restart of a static member leads to a new target.
    """
    real.differs()
    real(changes, member_id)
    changes.raise_epoch()


@mutant(GroupMachine, "excuse", tests="tests/core/groups/test_heartbeats.py", layers="tests", pure=False)
def _begins_in_the_past(real: Real, self: GroupMachine, context: Context) -> None:
    """75: a load gives no time (G8).

    Members that could not reach a coordinator are removed for their silence.
    """
    real.differs()
    known = dict(self.timers.session_ends)
    real(self, context)
    for member in self.timers.session_ends:
        self.timers.session_ends[member] = known.get(member, context.now_ms)


@mutant(Member, "has_lease", tests="tests/client/test_group_members.py", layers="tests", pure=False)
def _for_ever(real: Real, self: Member, now_ms: float) -> bool:
    """76: a client reads on after its lease (G22).

    Two members work on the records of one partition.
    """
    real.differs()
    return True
