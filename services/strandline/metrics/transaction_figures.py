"""What a scrape shows of the transactional ids that this node coordinates, by how far their transactions have come.

Invariant: no label has a transactional id, and nothing is remembered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from strandline.core.coordinator.shard import Shard
from strandline.core.transaction_ids.machine import TransactionMachine
from strandline.core.transaction_ids.records import TxnState
from strandline.metrics import families as f
from strandline.metrics.figures import Figure


def transaction_figures(shards: Collection[Shard]) -> Iterator[Figure]:
    """The present values; of partitions that serve."""
    machines = [shard.machine for shard in shards if shard.is_serving]
    states = Counter(
        value.state for one in machines if isinstance(one, TransactionMachine) for value in one.ids.values()
    )
    yield from (Figure(f.TRANSACTIONAL_IDS, states[state], (_word(state),)) for state in TxnState)


def _word(state: TxnState) -> str:
    """`PrepareCommit` as `prepare_commit`, as labels are written."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in state).lstrip("_")
