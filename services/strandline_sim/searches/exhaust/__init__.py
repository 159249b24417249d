"""Exhaustive search: every state of a small world, with the production core taking every decision.

Entry: ``search(variant, bounds, wanted) -> Result`` in `model`; ``Result.shortest`` is None or the shortest trace
found, ``Result.exhausted`` says whether the bounds were searched to their end, ``states`` how much it
was. To search a core with a fault sewn in, patch the core (or pass a `Variant` whose ``overrides`` do) and search::

    from strandline_sim.searches.exhaust import VARIANTS, Bounds, Property, search

    result = search(VARIANTS["leader-epoch"], Bounds(replicas=3, records=1, max_leader_epoch=2), [Property.STRONG_ISR])
    assert result.shortest is None, result.shortest.steps

Nothing of a search outlives it, so a patch holds for exactly the searches made under it.

What is the core's. Each node is a `NodeCore`, built from a compact value (`local`), stepped by one event, and read
back (`bench`); that is done once for each pair of a node's state and an event, whatever the rest of the world looks
like (`actions`). So metadata, truncation, the epoch cache, the fences, what a fetch is answered and whom it counts for,
the HW, ISR proposals and their answers are the code that serves. The controller's elections, fencing and AlterPartition
are `core.leadership` and `core.alter_partition` (`control`).

What is the model's.

- The network: metadata stays available for ever, may come late, and may be skipped. A question and its answer are one
  step: the answer comes, or is lost. A fetch brings one record or more of those that are there.
- Time: none. That a follower lags for too long, that a node is suspected, that an election is held, is a free choice.
  An ISR is joined by the rule `hw`, for `caught-up` allows less and only by the clock.
- Disk: never fails, and a commit completes within its step. No process restarts.
- Clients: acks=0, so min ISR refuses nothing and no request waits; the HW says what would be acknowledged.
- Counted as one step, as the published lengths count: hearing of a leader together with the first question to it, and
  an ISR proposal together with the controller's answer. Either is also tried in parts.
- Symmetry: the first leader is node 0; a record is named by offset, epoch and writer; partition epochs by their rank.
"""

from strandline_sim.searches.exhaust.local import Property
from strandline_sim.searches.exhaust.space import Found, Result, search
from strandline_sim.searches.exhaust.variants import VARIANTS, Bounds, Variant

__all__ = ["VARIANTS", "Bounds", "Found", "Property", "Result", "Variant", "search"]
