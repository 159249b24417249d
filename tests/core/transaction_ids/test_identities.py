"""Which identity a transactional producer gets: T89, T90 and every refusal of InitProducerId (X4, X5)."""

from __future__ import annotations

import pytest
from ids_alone import ID, P0, IdsAlone, code

from strandline.core.coordinator.machine import Record
from strandline.core.transactions.records import TransactionalIdKey, TxnState


@pytest.fixture
def alone() -> IdsAlone:
    """Transactional ids without a log, none of them known yet."""
    return IdsAlone()


def test_an_unknown_id_gets_a_new_producer_id_at_epoch_0(alone: IdsAlone) -> None:
    """T89, first row: two ids get two producer ids, both at epoch 0."""
    assert (alone.init(), alone.init(name="other")) == ((100, 0), (101, 0))


def test_the_last_epoch_leads_to_a_new_producer_id_and_a_copy_hears_of_the_same(alone: IdsAlone) -> None:
    """T89: at 32,766 the next identity is a new producer id at epoch 0, a copy of that request gets the same one, and
    the epoch before is fenced."""
    alone.at(32_766)

    assert alone.init((50, 32_766)) == (100, 0)
    assert alone.init((50, 32_766)) == (100, 0)
    assert code(alone.init((50, 32_765))) == "PRODUCER_FENCED"
    assert alone.init(name="other") == (101, 0), "no producer id was used up by the copy"


def test_who_names_its_identity_gets_the_next_epoch_and_a_copy_the_same(alone: IdsAlone) -> None:
    """T89: given 10 the answer is 11, given 10 again it is 11 again; after another's plain request it is fenced."""
    alone.at(10)

    assert (alone.init((50, 10)), alone.init((50, 10))) == ((50, 11), (50, 11))
    assert alone.init() == (50, 12)
    assert code(alone.init((50, 10))) == "PRODUCER_FENCED"
    assert code(alone.init((50, 11))) == "PRODUCER_FENCED"


def test_a_plain_request_forgets_the_identity_before(alone: IdsAlone) -> None:
    """T89: current 10, a plain request gets 11, and a process that comes with 10 is fenced."""
    alone.at(10)

    assert alone.init() == (50, 11)
    assert code(alone.init((50, 10))) == "PRODUCER_FENCED"


def test_an_open_transaction_is_aborted_once_before_the_next_identity(alone: IdsAlone) -> None:
    """T90: in Ongoing at epoch e the answer is CONCURRENT_TRANSACTIONS and the state PrepareAbort at e + 1, which
    repeated requests do not raise (KAFKA-19367); after the last marker the identity is e + 2."""
    alone.begun()

    assert code(alone.init()) == "CONCURRENT_TRANSACTIONS"
    assert (alone.state, alone.epoch) == ("PrepareAbort", 1)
    assert code(alone.init()) == "CONCURRENT_TRANSACTIONS"
    assert alone.epoch == 1
    alone.answer()
    assert (alone.state, alone.epoch) == ("CompleteAbort", 1)
    assert alone.init() == (100, 2)


def test_fencing_at_the_last_epoch_uses_32767_and_then_a_new_producer_id(alone: IdsAlone) -> None:
    """T90: the marker of a fence at 32,766 has epoch 32,767, and what follows is a new producer id; no epoch is ever
    negative."""
    alone.at(32_766, TxnState.ONGOING, partitions=(P0,), start_ms=1)

    assert code(alone.init()) == "CONCURRENT_TRANSACTIONS"
    assert alone.sent[0].identity == (50, 32_767)
    assert alone.value().next_identity == (100, 0)
    alone.answer()
    assert alone.value().identity == (100, 0)
    assert alone.init() == (100, 1)


def test_a_copy_that_arrives_in_the_next_transaction_aborts_nothing(alone: IdsAlone) -> None:
    """A late copy of a request with an identity is fenced once a transaction of the identity after it is open."""
    first = alone.init()
    assert isinstance(first, tuple)
    second = alone.init(first)
    alone.add(P0, by=second)

    assert code(alone.init(first)) == "PRODUCER_FENCED"
    assert alone.state == "Ongoing"


def test_a_producer_that_asks_within_its_own_transaction_goes_on_behind_the_abort(alone: IdsAlone) -> None:
    """Named identity, transaction open: it is aborted, and the same request is answered with the epoch of the abort's
    marker, which is the next transaction's, once that is complete."""
    identity = alone.begun()

    assert code(alone.init(identity)) == "CONCURRENT_TRANSACTIONS"
    assert code(alone.init(identity)) == "CONCURRENT_TRANSACTIONS"
    alone.answer()
    assert (alone.init(identity), alone.init(identity)) == ((100, 1), (100, 1))
    assert code(alone.add(P0, by=(100, 1))) == "PartitionsAdded()"


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_time_out_outside_of_the_bounds_is_refused(alone: IdsAlone, timeout_ms: int) -> None:
    """INVALID_TRANSACTION_TIMEOUT for nothing, less, or more than the maximum; nothing is written."""
    assert code(alone.init(timeout_ms=timeout_ms)) == "INVALID_TRANSACTION_TIMEOUT"
    assert not alone.log


def test_the_time_out_is_that_of_the_newest_request(alone: IdsAlone) -> None:
    """The maximum itself is taken, absence is the default of 60 s, and each request sets it again."""
    alone.init(timeout_ms=900_000)
    assert alone.value().timeout_ms == 900_000
    alone.init()
    assert alone.value().timeout_ms == 60_000


def test_without_producer_ids_known_ids_go_on() -> None:
    """While the controller is away a known id gets its next epoch, and a new one COORDINATOR_NOT_AVAILABLE (X4)."""
    alone = IdsAlone(producer_ids=0)
    alone.at(10)

    assert alone.init() == (50, 11)
    assert code(alone.init(name="other")) == "COORDINATOR_NOT_AVAILABLE"
    alone.supply.add(7, 1_000)
    assert alone.init(name="other") == (7, 0)


def test_without_producer_ids_the_last_epoch_has_to_wait() -> None:
    """At the last epoch init, the end of a transaction, and a time-out need a producer id and wait for one."""
    alone = IdsAlone(producer_ids=0)
    identity = alone.at(32_766)

    assert code(alone.init()) == "COORDINATOR_NOT_AVAILABLE"
    assert code(alone.end(identity)) == "COORDINATOR_NOT_AVAILABLE"
    alone.add(P0, by=identity)
    assert code(alone.end(identity)) == "COORDINATOR_NOT_AVAILABLE"
    assert code(alone.init()) == "COORDINATOR_NOT_AVAILABLE"
    alone.tick(100_000)
    assert alone.state == "Ongoing"
    alone.supply.add(7, 1_000)
    alone.tick(1_000)
    assert (alone.state, alone.value().next_identity) == ("PrepareAbort", (7, 0))


def test_two_transactions_at_their_last_epoch_get_two_producer_ids(alone: IdsAlone) -> None:
    """Time-outs that come due in one tick never share a producer id."""
    alone.at(32_766, TxnState.ONGOING, partitions=(P0,), start_ms=1)
    first = alone.value()
    alone.log.append(Record(TransactionalIdKey("other"), first))
    alone.machine = alone.loaded()
    alone.tick(60_000)
    alone.tick(1_000)

    assert first.identity.producer_epoch == 32_766
    assert {alone.value(name).next_identity.producer_id for name in (ID, "other")} == {100, 101}
