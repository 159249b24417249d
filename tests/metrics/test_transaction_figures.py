"""How many transactional ids a node coordinates, by state."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from strandline.core.coordinator.machine import Reports
from strandline.core.coordinator.shard import Shard
from strandline.core.log.producer_id_blocks import ProducerIdBlocks
from strandline.core.transactions.machine import TransactionMachine
from strandline.core.transactions.messages import ProducerIdentity
from strandline.core.transactions.records import TransactionalId, TxnState
from strandline.core.types import LeaderEpoch, TopicPartition
from strandline.metrics.groups import transaction_figures


def _shard(*states: TxnState, serves: bool = True) -> Shard:
    machine = TransactionMachine(Reports(TopicPartition("s", 0), LeaderEpoch(1)), ProducerIdBlocks())
    for number, state in enumerate(states):
        machine.ids[str(number)] = TransactionalId(
            identity=ProducerIdentity(number, 0), timeout_ms=1_000, state=state, update_ms=0
        )
    return cast(Any, SimpleNamespace(machine=machine, is_serving=serves))


def test_ids_are_counted_by_state() -> None:
    """Of all shards that serve, and every state is there from the start."""
    shards = [
        _shard(TxnState.ONGOING, TxnState.ONGOING, TxnState.PREPARE_COMMIT),
        _shard(TxnState.ONGOING, TxnState.COMPLETE_ABORT),
        _shard(TxnState.EMPTY, serves=False),
        cast(Any, SimpleNamespace(machine=object(), is_serving=True)),
    ]

    assert {figure.labels: figure.value for figure in transaction_figures(shards)} == {
        ("empty",): 0,
        ("ongoing",): 3,
        ("prepare_commit",): 1,
        ("prepare_abort",): 0,
        ("complete_commit",): 0,
        ("complete_abort",): 1,
    }
