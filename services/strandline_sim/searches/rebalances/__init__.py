"""Exhaustive search of rebalances: two members, three partitions, every order of what reaches whom (G17 to G19).

The production core decides each heartbeat; heartbeats and answers are lost, repeated and late, members start again,
and are removed after their rebalance time-out.
"""

from strandline_sim.searches.rebalances.model import RebalanceBounds, Result, search

__all__ = ["RebalanceBounds", "Result", "search"]
