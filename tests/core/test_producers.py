"""Idempotent producing as seen by one log (M61), and the blocks of producer ids that nodes give out."""

from __future__ import annotations

import pytest
from controller_builders import CLUSTER, Controller, next_reign, started
from core_builders import batch
from hypothesis import given, strategies as st

from strandline.core.control.messages import AllocateProducerIds, InitProducerId
from strandline.core.errors import ErrorCode
from strandline.core.log.producers import REMEMBERED_BATCHES, SEQUENCE_MODULUS, ProducerLedger, SequenceVerdict
from strandline.core.producer_ids import MAX_PRODUCER_EPOCH, ProducerIdBlocks
from strandline.core.types import BatchHeader, NodeEpoch, NodeId, Offset

NEXT, DUPLICATE = SequenceVerdict.NEXT, SequenceVerdict.DUPLICATE
OUT_OF_ORDER, TOO_OLD, FENCED = SequenceVerdict.OUT_OF_ORDER, SequenceVerdict.TOO_OLD, SequenceVerdict.FENCED
UNKNOWN = SequenceVerdict.UNKNOWN


def sent(sequence: int, records: int = 1, *, producer: int = 7, epoch: int = 0) -> BatchHeader:
    """A batch of producer 7."""
    return batch(records, producer=producer, producer_epoch=epoch, sequence=sequence)


def ledger(*headers: BatchHeader) -> ProducerLedger:
    """A ledger that has seen the batches, one after the other from offset 0."""
    built, offset = ProducerLedger(), 0
    for header in headers:
        built.observe(header, Offset(offset))
        offset += header.record_count
    return built


def test_a_producer_begins_at_zero() -> None:
    """For an unknown producer only sequence 0 is next."""
    assert ledger().check(sent(0)).verdict is NEXT
    assert ledger().check(sent(1)).verdict is OUT_OF_ORDER


def test_a_log_without_its_beginning_does_not_let_a_forgotten_producer_go_on() -> None:
    """After a restart at a higher log start, which removed records, an unknown producer starts again at sequence 0."""
    assert ledger().check(sent(7), log_start_offset=Offset(1)).verdict is UNKNOWN
    assert ledger().check(sent(0), log_start_offset=Offset(1)).verdict is NEXT
    assert ledger(sent(0)).check(sent(7), log_start_offset=Offset(1)).verdict is OUT_OF_ORDER


def test_without_a_producer_id_everything_is_next() -> None:
    """A batch that is not idempotent is neither checked nor stored."""
    built = ledger(batch(3))

    assert built.check(batch(3)).verdict is NEXT
    assert built.rows() == ()


def test_five_batches_are_recognised() -> None:
    """M61: the last five batches are duplicates with their own offsets, an older one is too old."""
    built = ledger(*(sent(2 * i, 2) for i in range(6)))
    checks = [built.check(sent(2 * i, 2)) for i in range(6)]

    assert [c.verdict for c in checks] == [TOO_OLD] + [DUPLICATE] * REMEMBERED_BATCHES
    assert [c.first.first_offset for c in checks if c.first] == [2, 4, 6, 8, 10]
    assert [c.first.last_offset for c in checks if c.first] == [3, 5, 7, 9, 11]


def test_a_gap_is_out_of_order() -> None:
    """A batch that leaves a gap is rejected with the expected sequence."""
    check = ledger(sent(0, 3)).check(sent(4))

    assert (check.verdict, check.expected_sequence) == (OUT_OF_ORDER, 3)


def test_half_a_duplicate_is_none() -> None:
    """A batch that begins like a known one but ends elsewhere is not a duplicate and is not appended."""
    assert ledger(sent(0, 3)).check(sent(0, 2)).verdict is TOO_OLD


def test_sequences_wrap() -> None:
    """Sequences wrap from 2^31 - 1 to 0; a batch may span the wrap and be recognised again."""
    last = SEQUENCE_MODULUS - 1
    # A ledger may be rebuilt from a log whose producer is near the wrap.
    built = ledger(sent(last - 1, 1), sent(last, 3))

    assert built.check(sent(2)).verdict is NEXT
    assert built.check(sent(last, 3)).verdict is DUPLICATE
    assert built.check(sent(last - 1, 1)).verdict is DUPLICATE
    assert built.check(sent(3)).verdict is OUT_OF_ORDER
    assert built.check(sent(last - 2)).verdict is TOO_OLD
    assert built.rows()[-1].last_sequence == 1


def test_a_newer_producer_epoch_begins_again() -> None:
    """A newer epoch begins at 0, fences the older one, and has its own duplicates."""
    built = ledger(sent(0), sent(1))

    assert built.check(sent(0, epoch=1)).verdict is NEXT
    assert built.check(sent(2, epoch=1)).verdict is OUT_OF_ORDER
    built.observe(sent(0, epoch=1), Offset(2))
    assert built.check(sent(2, epoch=0)).verdict is FENCED
    assert built.check(sent(0, epoch=0)).verdict is FENCED
    found = built.check(sent(0, epoch=1))
    assert found.verdict is DUPLICATE and found.first.first_offset == 2


def test_producers_do_not_meet() -> None:
    """Two producers of one log have independent sequences."""
    built = ledger(sent(0), sent(0, producer=8), sent(1))

    assert built.check(sent(1, producer=8)).verdict is NEXT
    assert built.check(sent(1)).verdict is DUPLICATE


@pytest.mark.parametrize("count", [0, 1, 5, 9])
def test_rows_make_the_same_ledger_again(count: int) -> None:
    """M61: a ledger that is stored and read again gives the same decisions."""
    built = ledger(*(sent(i) for i in range(count)))
    again = ProducerLedger(built.rows())

    assert again.rows() == built.rows()
    assert [again.check(sent(i)).verdict for i in range(12)] == [built.check(sent(i)).verdict for i in range(12)]


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2)), max_size=25), st.integers(0, 24))
def test_cutting_is_forgetting(batches: list[tuple[int, int]], kept: int) -> None:
    """The ledger is a function of the log: folding a prefix gives the ledger of a log truncated there."""
    headers, due = [], {0: 0, 1: 0, 2: 0}
    for records, producer in batches:
        headers.append(sent(due[producer], records, producer=producer))
        due[producer] += records
    prefix = ledger(*headers[:kept])
    expected: dict[int, int] = {}
    for header in headers[:kept]:
        expected[header.producer.producer_id] = header.producer.base_sequence + header.record_count
    for producer in range(3):
        assert prefix.check(sent(expected.get(producer, 0), producer=producer)).verdict is NEXT


# Producer ids that nodes give: blocks of the controller, each id once, the next block in time.


def allocate(controller: Controller, node_id: int, node_epoch: int | None = None) -> AllocateProducerIds:
    epoch = controller.epochs[node_id] if node_epoch is None else NodeEpoch(node_epoch)
    return AllocateProducerIds(node_id=NodeId(node_id), node_epoch=epoch, cluster_id=CLUSTER)


def test_no_id_is_in_two_blocks_nor_given_by_the_controller() -> None:
    """Blocks of nodes, and the ids that the controller gives itself, have nothing in common, over restarts as well."""
    controller = started(1, 2)
    first = controller.ask(allocate(controller, 1))
    own = controller.ask(InitProducerId()).producer_id
    second = controller.ask(allocate(controller, 2))
    again = next_reign(controller)
    blocks = [range(a.start, a.start + a.length) for a in (first, second, again.ask(allocate(again, 1)))]
    ids = [*(producer_id for block in blocks for producer_id in block), own]
    assert [len(block) for block in blocks] == [1_000] * 3
    assert len(set(ids)) == len(ids)


def test_a_block_that_the_store_forgot_is_not_given_again() -> None:
    """C33, TR36: the next reign begins above all that its store's lost end may have reserved."""
    controller = started(1)
    before = controller.stored
    lost = controller.ask(allocate(controller, 1))
    again = next_reign(controller, before)

    assert again.ask(allocate(again, 1)).start >= lost.start + lost.length


def test_a_block_is_for_the_process_that_is_registered() -> None:
    """A node epoch that is not the current one, and a node that is not known, get no block."""
    controller = started(1)
    before = controller.core.state.header.next_producer_id
    old = controller.ask(allocate(controller, 1, controller.epochs[1] - 1))

    assert old.refusal.code is ErrorCode.STALE_BROKER_EPOCH
    assert controller.core.state.header.next_producer_id == before


def new_ids(blocks: ProducerIdBlocks, count: int) -> list[int | None]:
    given = [blocks.give(InitProducerId()) for _ in range(count)]
    return [None if answer is None else answer.producer_id for answer in given]


def test_ids_are_given_in_order_over_two_blocks_and_then_no_more() -> None:
    """The next block is used once the first is used up; without one nothing is given."""
    blocks = ProducerIdBlocks()
    empty = new_ids(blocks, 1)
    blocks.add(10, 2)
    blocks.add(50, 1)

    assert empty == [None]
    assert new_ids(blocks, 4) == [10, 11, 50, None]


def test_the_next_block_is_wanted_at_half() -> None:
    """A node asks before it needs: at half of the block in use, and not while it has the next one."""
    blocks = ProducerIdBlocks()
    wanted = [blocks.wants_more]
    blocks.add(0, 4)
    for _ in range(4):
        wanted.append(blocks.wants_more)
        new_ids(blocks, 1)
        if len(wanted) == 4:
            blocks.add(100, 4)
    wanted.append(blocks.wants_more)

    assert wanted == [True, False, False, True, False, False]


def test_a_known_id_gets_its_next_epoch() -> None:
    """An id that a producer has needs no block; the last epoch of an id is followed by a new one."""
    blocks = ProducerIdBlocks()
    bumped = blocks.give(InitProducerId(producer_id=7, producer_epoch=3))
    blocks.add(10, 1)
    used_up = blocks.give(InitProducerId(producer_id=7, producer_epoch=MAX_PRODUCER_EPOCH))

    assert (bumped.producer_id, bumped.producer_epoch) == (7, 4)
    assert (used_up.producer_id, used_up.producer_epoch) == (10, 0)


def test_half_an_identity_is_refused() -> None:
    """producer_id and producer_epoch go together."""
    answer = ProducerIdBlocks().give(InitProducerId(producer_id=7))

    assert answer.refusal.code is ErrorCode.INVALID_REQUEST
