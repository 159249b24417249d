"""The verbs that take old records away: delete-records, retention."""

from __future__ import annotations

from strandline.core.log import events
from strandline.core.types import Offset
from strandline_sim.scenario.call import Call, Verb
from strandline_sim.scenario.nodes import TP, Actor


def delete_records(call: Call) -> None:
    """`delete-records`: an operator deletes everything below an offset, or below ``latest``, and waits for the ISR."""
    actor = _leading(call)
    if "before" not in call.options:
        raise call.wrong(None, "before=, the first offset that is kept")
    before = call.options["before"]
    offset = None if before.text == "latest" else Offset(call.integer(before))
    label = call.text_option("as", "deletion")
    call.stage.clients.delete(actor, offset, label=label, timeout_ms=call.duration_option("timeout", 30_000))


def retention(call: Call) -> None:
    """`retention`: retention by size looks at the leader's log, each batch a segment of its own."""
    actor = _leading(call)
    if "bytes" not in call.options:
        raise call.wrong(None, "bytes=, what shall be left as retention.bytes says it")
    offset = _expired_upto(actor, call.integer(call.options["bytes"]))
    if offset is not None:
        call.stage.step(actor, events.RetentionFound(call.stage.now_ms, TP, offset))


def _leading(call: Call) -> Actor:
    word = call.word(0, "the leading node")
    call.no_more(1)
    actor = call.running(word)
    assert actor.core is not None
    if TP not in actor.core.state.leaders:
        raise call.wrong(word, "a node that leads", f"{actor.name}, which does not")
    return actor


def _expired_upto(actor: Actor, keep_bytes: int) -> Offset | None:
    """As `storage/chain.py` decides by size: oldest first, never the newest batch, never at or above the HW."""
    assert actor.core is not None
    log, hw = actor.log, actor.core.state.logs[TP].hw
    kept = [header for header in log.headers if header.next_offset > log.log_start]
    excess = sum(header.size_bytes for header in kept) - keep_bytes
    target: Offset | None = None
    for header in kept[:-1]:
        if header.next_offset > hw or excess < header.size_bytes:
            break
        excess -= header.size_bytes
        target = header.next_offset
    return target


VERBS = (
    Verb("delete-records", delete_records, ("before", "as", "timeout")),
    Verb("retention", retention, ("bytes",)),
)
