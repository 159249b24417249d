"""Decides which causes of the export somebody asked for; imports no Spark.

Invariant: a cause that is not known here is unplanned: whoever looks into nothing has lost a minute, and no record.
"""

from __future__ import annotations

PLANNED = frozenset({"controlled_shutdown", "reassign", "preferred", "created"})
"""Causes of decisions that somebody asked for."""
