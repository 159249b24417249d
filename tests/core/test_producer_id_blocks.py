"""Producer ids that nodes give: blocks of the controller, each id once, the next block in time."""

from __future__ import annotations

from controller_builders import CLUSTER, Controller

from strandline.core.control.messages import AllocateProducerIds, InitProducerId
from strandline.core.control.producer_ids import MAX_PRODUCER_EPOCH
from strandline.core.errors import ErrorCode
from strandline.core.log.producer_id_blocks import ProducerIdBlocks
from strandline.core.types import NodeEpoch, NodeId


def allocate(controller: Controller, node_id: int, node_epoch: int | None = None) -> AllocateProducerIds:
    epoch = controller.epochs[node_id] if node_epoch is None else NodeEpoch(node_epoch)
    return AllocateProducerIds(node_id=NodeId(node_id), node_epoch=epoch, cluster_id=CLUSTER)


def test_no_id_is_in_two_blocks_nor_given_by_the_controller() -> None:
    """Blocks of nodes, and the ids that the controller gives itself, have nothing in common, over restarts as well."""
    controller = Controller()
    controller.start(1, 2)
    first = controller.ask(allocate(controller, 1))
    own = controller.ask(InitProducerId()).producer_id
    second = controller.ask(allocate(controller, 2))
    again = Controller(state=controller.stored)
    again.epochs = controller.epochs
    third = again.ask(allocate(again, 1))

    blocks = [range(a.start, a.start + a.length) for a in (first, second, third)]
    ids = [*(producer_id for block in blocks for producer_id in block), own]
    assert [len(block) for block in blocks] == [1_000] * 3
    assert len(set(ids)) == len(ids)


def test_a_block_that_the_store_forgot_is_not_given_again() -> None:
    """C33, TR36: the next reign begins above all that its store's lost end may have reserved."""
    controller = Controller()
    controller.start(1)
    before = controller.stored
    lost = controller.ask(allocate(controller, 1))
    again = Controller(state=before)
    again.epochs = controller.epochs
    given = again.ask(allocate(again, 1))

    assert given.start >= lost.start + lost.length


def test_a_block_is_for_the_process_that_is_registered() -> None:
    """A node epoch that is not the current one, and a node that is not known, get no block."""
    controller = Controller()
    controller.start(1)
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

    assert bumped is not None
    assert (bumped.producer_id, bumped.producer_epoch) == (7, 4)
    assert used_up is not None
    assert (used_up.producer_id, used_up.producer_epoch) == (10, 0)


def test_half_an_identity_is_refused() -> None:
    """producer_id and producer_epoch go together."""
    answer = ProducerIdBlocks().give(InitProducerId(producer_id=7))

    assert answer is not None
    assert answer.refusal is not None
    assert answer.refusal.code is ErrorCode.INVALID_REQUEST
