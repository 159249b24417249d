"""Exhaustive search of transactions: one producer, two partitions, every order of what reaches whom (I36 to I38).

What is production's: each partition is a `NodeCore` that leads it, and the transactional id is a machine of the
coordinator (`core.transaction_ids`); both are built from a value, stepped once and read back. What is the model's: one
record for each partition and transaction; the network, which delays, repeats and loses; no time, so that a time-out
may happen whenever a transaction is open; leaders that die with what is not committed; a coordinator whose writes are
committed at once, and that starts again.
"""

from strandline_sim.searches.transactions.steps import Result, search
from strandline_sim.searches.transactions.world import TransactionBounds

__all__ = ["TransactionBounds", "Result", "search"]
