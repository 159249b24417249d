"""Exhaustive search for elections after losses: every order of crashes, returns and reports, and one lost directory.

Entry: ``search(Bounds()) -> Result`` in `model`; ``Result.violation`` is None or a shortest trace. It answers one
question: while at most one replica loses durable records (min ISR 2, A5), is the elected leader's log ever without a
record that was committed (P1)? A patched core is searched as the patch makes it.

What is the core's: every decision of the controller. Registration, sessions that end together, what a fenced or
stopped node leaves behind, elections, reports, proposals for an ISR and their refusal are `core.registration`,
`core.leadership`, `core.report_intake`, `core.election` and `core.alter_partition`; who may join an ISR is `core.isr`
(`control`).

What is the model's (`world`), and what that cuts off:

- Replication is one step: a fetch passes the divergence check, cuts what its leader lacks, is counted at its offset,
  and brings any number of the records that follow. A first fetch, its answer and the cut are not taken apart; the
  rules of `sim.exhaust` are searched for that.
- Followers know no high watermark, so none refuses to cut: P1 must hold without such refusals.
- A node that was elected takes office in a step of its own. A leader that lost its session leads no more; zombies are
  `sim.exhaust`'s.
- Producers: ``records`` appends in all, each committed when every member of an ISR of at least min ISR was counted.
- One loss: a tail of any length, or the whole directory as it was at any earlier moment, in the same process or an
  earlier one, and possibly noticed at the start, when the node registers as unclean.
- The controller restarts at any time; it forgets what was reported and nothing else.

With reassignments (`moving`) the same world answers another question: is a place, a copy or a committed record ever
lost (I25, P1)? Then no replica loses records, and besides:

- Targets are submitted, replaced and cancelled at any time; each step of the controller also ends what may end, with
  `core.moves` and `core.reassignment`. There is always room, so nothing waits for its turn.
- A proposal for an ISR may be decided late, or its answer lost; the leader waits with its maximal ISR until it learns
  what was decided. A proposal that is outdated then arrives no more.
- Who is a replica no more drops its log at once, or when it returns. A removed leader that hears of nothing is left
  out, as any zombie; so is a store that loses an answer, which is `sim.reigns`'.
"""

from strandline_sim.searches.elections.model import ElectionBounds, Result, moving, search

__all__ = ["ElectionBounds", "Result", "moving", "search"]
