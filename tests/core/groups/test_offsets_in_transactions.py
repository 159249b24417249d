"""Offsets that a transaction commits for a group: staged, then promoted or dropped by its marker (X16 to X18)."""

from __future__ import annotations

import pytest
from groups_alone import GROUP, GroupsAlone, Topics, code, codes, seed, state_of, tps

from strandline.core.coordinator.machine import VerifyTransaction
from strandline.core.errors import Refusal
from strandline.core.groups.messages import DeleteGroup, GroupSettings, OffsetDelete, OffsetFetch, TxnOffsetCommit
from strandline.core.groups.records import GroupKey, ProducerFenceKey

DAY_MS = 86_400_000


def _alone(**settings: int) -> GroupsAlone:
    return GroupsAlone(Topics(foo=6, bar=3), GroupSettings(assignment_interval_ms=0, **settings))


@pytest.fixture
def alone() -> GroupsAlone:
    """Groups without a log, under the default retention."""
    return _alone()


def test_a_staged_offset_counts_from_the_marker_on(alone: GroupsAlone) -> None:
    """No request returns what is staged; the marker of a commit makes it the group's."""
    alone.commit(3)
    assert codes(alone.stage(7)) == ["OK"]
    assert alone.offsets() == [3]
    assert alone.mark(1) is None
    assert alone.offsets() == [7]
    assert alone.group.staged == {}


def test_an_abort_drops_what_was_staged(alone: GroupsAlone) -> None:
    """The group is where it was before, and the next transaction stages as if there had been none."""
    alone.commit(3)
    alone.stage(7)
    alone.mark(1, commit=False)
    assert alone.offsets() == [3]

    alone.stage(8, producer_epoch=1)
    alone.mark(2)

    assert alone.offsets() == [8]


def test_one_marker_ends_a_transaction_over_several_groups_in_one_batch(alone: GroupsAlone) -> None:
    """A shard has many groups, and a marker names none: what it writes is atomic, with its fence last."""
    for group_id in ("readers", "others"):
        alone.stage(7, group_id=group_id, of={"foo": [0, 1]})
    before = len(alone.log)
    alone.mark(1)
    written = alone.log[before:]
    assert len([record for record in written if record.value is not None]) == 5
    assert written[-1].key == ProducerFenceKey(9)
    assert all(len(alone.machine.group(group_id).offsets["foo-id"]) == 2 for group_id in ("readers", "others"))


def test_a_plain_commit_that_came_later_stays(alone: GroupsAlone) -> None:
    """R58: the order of the requests decides, not that the marker came last."""
    alone.stage(7)
    alone.commit(9)
    alone.mark(1)

    assert alone.offsets() == [9]
    assert alone.group.staged == {}


@pytest.mark.parametrize("markers", [(1, 2), (2, 1)], ids=str)
def test_of_two_transactions_the_one_that_staged_last_counts(alone: GroupsAlone, markers: tuple[int, int]) -> None:
    """R58: the order of their markers makes no difference."""
    alone.stage(5, producer=1)
    alone.stage(6, producer=2)
    for producer in markers:
        alone.mark(1, producer=producer)

    assert alone.offsets() == [6]


def test_a_later_request_of_the_same_transaction_replaces_an_earlier(alone: GroupsAlone) -> None:
    """The partition takes part in the transaction already, so the coordinator is not asked about it."""
    alone.stage(7)
    alone.stage(8)
    alone.mark(1)

    assert alone.offsets() == [8]
    assert alone.verified == [VerifyTransaction("t", 9, 0)]


def test_each_transaction_is_asked_about(alone: GroupsAlone) -> None:
    """The epoch of the next one has staged nothing yet."""
    alone.stage(7)
    alone.mark(1)
    alone.stage(8, producer_epoch=1)

    assert [each.producer_epoch for each in alone.verified] == [0, 1]


def test_nothing_is_asked_where_nothing_is_staged(alone: GroupsAlone) -> None:
    """A partition that takes part in a transaction needs its marker, so one without offsets is not added."""
    assert codes(alone.stage(-1)) == ["INVALID_REQUEST"]
    assert alone.verified == []


def test_a_marker_fences_the_epochs_below_its_own(alone: GroupsAlone) -> None:
    """Also where its producer never staged anything, and also after the verification of a late request."""
    alone.mark(4)

    assert code(alone.stage(7, producer_epoch=3)) == "INVALID_PRODUCER_EPOCH"
    assert alone.verified == []
    request = TxnOffsetCommit(transactional_id="t", producer_id=9, producer_epoch=3, group_id=GROUP, offsets=())
    verified = alone.machine.decide(request, alone.context)
    assert isinstance(verified.answer, Refusal)
    assert verified.answer.outcome is not None
    assert codes(alone.stage(7, producer_epoch=4)) == ["OK"]


def test_a_newer_transaction_fences_an_older_before_any_marker(alone: GroupsAlone) -> None:
    """What was staged in an epoch says that those below it are over."""
    alone.stage(7, producer_epoch=3)

    assert code(alone.stage(6, producer_epoch=2)) == "INVALID_PRODUCER_EPOCH"


def test_a_late_copy_of_a_marker_does_not_end_the_next_transaction(alone: GroupsAlone) -> None:
    """X11 for groups: the next transaction has the epoch of that marker, and the copy would commit it half-way."""
    alone.stage(7)
    alone.mark(1)
    alone.stage(8, producer_epoch=1)

    assert code(alone.mark(1)) == "INVALID_PRODUCER_EPOCH"
    assert alone.offsets() == [7]
    assert alone.group.staged
    assert code(alone.mark(0)) == "INVALID_PRODUCER_EPOCH"


def test_a_repeated_marker_writes_nothing(alone: GroupsAlone) -> None:
    """It is done already; only a newer coordinator's is written, so that the older one stays fenced."""
    alone.stage(7)
    alone.mark(1)
    before = len(alone.log)

    assert alone.mark(1) is None
    assert len(alone.log) == before
    assert alone.mark(1, coordinator=2) is None
    assert len(alone.log) == before + 1
    assert code(alone.mark(2, coordinator=1)) == "TRANSACTION_COORDINATOR_FENCED"


def test_only_a_member_that_owns_the_partition_stages_for_it(alone: GroupsAlone) -> None:
    """X18: the epoch of a zombie's member fences it, whatever its transactional id is."""
    seed(alone, 10, {"m1": {"foo": [0]}, "m2": {"foo": [1]}}, ("foo",))
    of = {"foo": [0, 1]}
    assert codes(alone.stage(7, of=of, member_id="m1", member_epoch=10)) == ["OK", "STALE_MEMBER_EPOCH"]
    assert codes(alone.stage(7, member_id="m1", member_epoch=9)) == ["STALE_MEMBER_EPOCH"]
    assert code(alone.stage(7, member_id="m3", member_epoch=10)) == "UNKNOWN_MEMBER_ID"
    assert code(alone.stage(7)) == "UNKNOWN_MEMBER_ID"


@pytest.mark.parametrize(
    ("named", "error"), [({"group_id": " "}, "INVALID_GROUP_ID"), ({"transactional_id": ""}, "INVALID_REQUEST")]
)
def test_a_request_without_a_name_is_refused(alone: GroupsAlone, named: dict[str, str], error: str) -> None:
    """The request is refused before anything is asked or written."""
    assert code(alone.stage(7, **named)) == error
    assert alone.log == []


def test_offsets_that_are_not_stable_are_not_shown_to_who_needs_them(alone: GroupsAlone) -> None:
    """X17: also where nothing was committed before; without require_stable the committed one is shown."""
    alone.commit(3)
    alone.stage(7, of={"foo": [0, 1]})
    both = {"foo": [0, 1, 2]}
    assert alone.offsets(both, require_stable=True) == ["UNSTABLE_OFFSET_COMMIT"] * 2 + [None]
    assert alone.offsets(both) == [3, None, None]
    everything = alone.ask(OffsetFetch(group_id=GROUP, require_stable=True))
    assert [each.tp for each in everything.partitions] == list(tps({"foo": [0, 1]}))
    alone.mark(1)
    assert alone.offsets(both, require_stable=True) == [7, 7, None]


def test_neither_offsets_nor_groups_expire_under_an_open_transaction() -> None:
    """R57: an abort would leave a group without the offset that it had, and a commit one that cannot be deleted."""
    alone = _alone(offsets_retention_ms=DAY_MS)
    alone.commit(3)
    alone.stage(7)
    alone.stage(4, group_id="others")
    alone.tick(2 * DAY_MS)

    assert alone.offsets() == [3]
    assert alone.machine.group("others").staged
    alone.mark(1, commit=False)
    alone.tick(DAY_MS)
    assert alone.machine.groups == {}


def test_deletions_take_what_is_staged_with_them(alone: GroupsAlone) -> None:
    """G30: of one partition, of a deleted topic, of a group; the marker then finds nothing and fences all the same."""
    alone.commit(1, of={"bar": [0]})
    alone.stage(7, of={"foo": [0, 1], "bar": [0]})
    alone.tick()
    alone.ask(OffsetDelete(group_id=GROUP, partitions=tps({"foo": [0]})))
    assert set(alone.group.staged) == set(tps({"foo": [1], "bar": [0]}))
    alone.topics.drop("bar")
    alone.tick(1)
    assert set(alone.group.staged) == set(tps({"foo": [1]}))
    alone.ask(DeleteGroup(group_id=GROUP))
    assert alone.machine.groups == {}
    assert alone.mark(1) is None
    assert alone.machine.groups == {}
    assert alone.machine.producers.fences[9].producer_epoch == 1


def test_a_group_of_nothing_but_staged_offsets_is_empty(alone: GroupsAlone) -> None:
    """It is listed as Kafka lists it, and gone with an abort once its retention has passed."""
    alone.stage(7)

    assert alone.group.state == "Empty"


def test_an_aborted_order_is_not_given_again(alone: GroupsAlone) -> None:
    """G26: a group's orders rise, also over a sweep that leaves out what was dropped."""
    alone.stage(7)
    alone.mark(1, commit=False)

    assert [record.value.order for record in alone.log if isinstance(record.key, GroupKey)] == [1]
    alone.commit(3)
    assert alone.group.offsets["foo-id"][0].order == 2


def test_a_fence_goes_when_unused_for_its_retention() -> None:
    """Not before, and not while its producer has something staged."""
    alone = _alone(fence_retention_ms=7 * DAY_MS)
    alone.mark(1)
    alone.stage(7, producer=8)
    alone.mark(1, producer=8)
    alone.stage(8, producer=8, producer_epoch=1)
    alone.tick(7 * DAY_MS - 1)
    assert set(alone.machine.producers.fences) == {8, 9}

    alone.tick(DAY_MS)
    assert set(alone.machine.producers.fences) == {8}
    assert alone.folded() == state_of(alone.machine)
