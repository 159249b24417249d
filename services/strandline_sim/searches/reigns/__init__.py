"""Exhaustive search for reigns: two controllers, one store, every order of answers, losses and pauses.

Entry: ``search(Bounds()) -> Result`` in `model`; ``Result.violation`` is None or a shortest trace. Every decision of
a controller is `core.reign`'s; what a store compares is `sim.fenced_log`'s. A patched core is searched as the patch
makes it.

What is the model's, and what that cuts off:

- There is no clock. That a back-off ends, or that a lease may have ended by a controller's own time, is a step that may
  come at any moment; so is the end of a lease at the store, in time or not. A controller that is stopped is one to
  which nothing happens for a while.
- A campaign, an append, a taking and a resignation reach the store and are answered in two steps, or are given up
  without an answer, and then reach the store later or never. A read is made at one moment and answered later. A
  renewal, a look, a read of the alarm or of the log is one step.
- A watch shows the key and the log as they are, at any later time; the log also transaction by transaction.
- The store has space, and never goes back in time: a controller that stops because it believes so is a violation.
"""

from strandline_sim.searches.reigns.model import Result, search
from strandline_sim.searches.reigns.steps import ReignBounds

__all__ = ["ReignBounds", "Result", "search"]
