"""What must hold of a leader that was replaced without knowing it, from the view of the client that uses only it.

Invariant: checked against the client's history; the node's own state does not count.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from harness.load import STRICT
from harness.run import Run
from harness.stale_client import NAME
from running_cluster import until

_GRACE_S = 1.0
"""An answer under way when the epoch moved may still arrive; it was right when it was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A leader of partition 0 at the time when it was cut off."""

    node: int
    epoch: int
    since_s: float


async def watched(run: Run, since_s: float) -> Watched:
    """Stores the leader of partition 0. Call it before the fault."""
    now = await run.probe.partition(STRICT)
    return Watched(node=now.leader_id, epoch=now.leader_epoch, since_s=since_s)


async def deposed(run: Run, before: Watched) -> float:
    """Waits until another node leads; returns the time at which that was seen."""

    async def look() -> list[float]:
        now = await run.probe.partition(STRICT)
        is_new = now.HasField("leader_id") and now.leader_id != before.node and now.leader_epoch > before.epoch
        return [time.monotonic()] if is_new else []

    return (await until(look, f"another node than {before.node} leads {STRICT}-0"))[0]


async def must_have_refused(run: Run, before: Watched, deposed_s: float, healed_s: float) -> None:
    """The old leader acknowledges no send that began after another leader was there, up to the healing."""
    sends = run.load.sent_between(NAME, deposed_s + _GRACE_S, healed_s)

    async def look() -> bool:
        return all(each.outcome for each in sends)

    await until(look, "what was sent to the old leader has ended")
    accepted = [each for each in sends if each.outcome == "ok" and (each.completed_s or 0) < healed_s]
    run.counters["zombie_refused"] += sum(each.outcome in ("definite", "indefinite") for each in sends)
    run.check(
        not accepted,
        f"node {before.node} acknowledged {len(accepted)} sends after it had been replaced, first {accepted[:1]}",
    )
