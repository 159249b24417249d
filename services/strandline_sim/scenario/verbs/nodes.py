"""The verbs that happen to processes, disks and old records, and the one that lets time pass."""

from __future__ import annotations

from strandline.core.log import events
from strandline.core.types import Offset
from strandline_sim.scenario.board import CONTROLLER
from strandline_sim.scenario.call import Verb, VerbCall
from strandline_sim.scenario.language import Word
from strandline_sim.scenario.nodes import TP, Actor


def crash(call: VerbCall) -> None:
    """`crash`: kill -9. What was written survives in the page cache. ``keep-sent``: what it sent still arrives."""
    keep_sent = call.words[-1].text == "keep-sent" if len(call.words) > 1 else False
    for word in call.words[: -1 if keep_sent else None] or [call.word(0, "a node, or ctl")]:
        if word.text == CONTROLLER:
            _only_one(call, word)
            if call.stage.control.core is None:
                raise call.wrong(word, "a controller that runs", "a controller that is down")
            call.stage.control.crash()
        else:
            _end(call, call.running(word), keep_sent=keep_sent)


def _only_one(call: VerbCall, word: Word) -> None:
    group = call.stage.control.group
    if group is not None and group.is_several:
        raise call.wrong(word, "a node: of several controllers one is paused, or its lease ended")


def _end(call: VerbCall, actor: Actor, *, keep_sent: bool = False) -> None:
    actor.disk.was_stopped_cleanly = False
    call.stage.end_process(actor, keep_sent=keep_sent)


def power_off(call: VerbCall) -> None:
    """`power-off`: the process ends and what was not durable is lost, from ``keep`` on."""
    word = call.word(0, "a node")
    actor = call.node(word)
    call.no_more(1)
    durable, leo = actor.log.synced, actor.log.leo
    keep = call.integer_option("keep", durable)
    if not durable <= keep <= leo:
        raise call.wrong(call.options["keep"], f"an offset from {durable} (what is durable) to {leo} (the log end)")
    _whole_batches(call, "keep", actor, keep)
    if actor.is_running:
        _end(call, actor)
    actor.log.cut(keep)
    actor.log.hw_cached = actor.log.hw_durable
    call.stage.tell(f"{actor.name}: log {leo}->{keep} on the disk")


def _whole_batches(call: VerbCall, option: str, actor: Actor, offset: int) -> None:
    """A checksum covers a batch: none is left half."""
    border = actor.log.border_below(offset)
    if border != offset:
        raise call.wrong(call.options.get(option), f"an offset at which a batch begins or ends, such as {border}")


def restart(call: VerbCall) -> None:
    """`restart`: begin a process, crashing the old one first if it runs; it recovers, registers and watches."""
    word = call.word(0, "a node, or ctl")
    call.no_more(1)
    stage = call.stage
    if word.text == CONTROLLER:
        _only_one(call, word)
        _restart_controller(call)
        return
    actor = call.node(word)
    if stage.control.core is None:
        raise call.wrong(word, "a controller that runs, to register with", "a controller that is down")
    if actor.is_running:
        _end(call, actor)
    said = call.text_option("unclean", "", ("yes", "no"))
    if stage.start(actor, unclean={"yes": True, "no": False}.get(said)):
        stage.control.beat(actor)


def _restart_controller(call: VerbCall) -> None:
    """The controller begins a new reign; ``lose=2`` on a store that lacks its last two transactions (TR18)."""
    control, lose = call.stage.control, call.integer_option("lose", 0)
    if lose >= max(1, control.transactions):
        raise call.wrong(call.options.get("lose"), f"fewer than the store's {control.transactions} transactions")
    control.crash()
    if lose:
        control.lose_transactions(lose)
    control.start()


def shutdown(call: VerbCall) -> None:
    """`shutdown`: a controlled stop: the controller moves leadership away, the log is synced, the process ends."""
    actor = call.running(call.word(0, "a node"))
    call.no_more(1)
    stage = call.stage
    stage.control.beat(actor, wants_shut_down=True)
    stage.step(actor, events.StopRequested(stage.now_ms))
    stage.end_process(actor)
    actor.log.synced = actor.log.leo
    actor.disk.was_stopped_cleanly = True


def wipe(call: VerbCall) -> None:
    """`wipe`: an empty disk takes the place of a node that is down."""
    actor = call.stopped(call.word(0, "a node that is down"))
    call.no_more(1)
    actor.disk.wipe()


def cut_log(call: VerbCall) -> None:
    """`cut-log`: damage to the file of a node that is down: everything from ``to`` on is gone."""
    word = call.word(0, "a node that is down")
    actor = call.stopped(word)
    call.no_more(1)
    if "to" not in call.options:
        raise call.wrong(None, "to=, the offset at which the log shall end")
    log, to = actor.log, call.integer(call.options["to"])
    if not log.log_start <= to <= log.leo:
        raise call.wrong(call.options["to"], f"an offset from {log.log_start} to {log.leo}")
    _whole_batches(call, "to", actor, to)
    leo = log.leo
    # Recovery misses what lies below its checkpoints (M58); what was written since then it cannot know of.
    log.lose_from(to)
    call.stage.tell(f"{actor.name}: log {leo}->{to} on the disk")


def copy_disk(call: VerbCall) -> None:
    """`copy-disk`: a backup of a node's whole directory, as it is now."""
    actor = call.node(call.word(0, "a node"))
    call.no_more(1)
    actor.backup = actor.disk.copied()


def restore_disk(call: VerbCall) -> None:
    """`restore-disk`: the backup takes the place of the directory of a node that is down."""
    word = call.word(0, "a node that is down")
    actor = call.stopped(word)
    call.no_more(1)
    if actor.backup is None:
        raise call.wrong(word, "a node whose directory was copied before", "no copy-disk for this node")
    leo, actor.disk = actor.log.leo, actor.backup.copied()
    call.stage.tell(f"{actor.name}: log {leo}->{actor.log.leo} on the disk, as it was copied")


def tick(call: VerbCall) -> None:
    """`tick`: let time pass. Heartbeats pass by themselves, other messages wait."""
    ms = call.duration_ms(call.word(0, "a duration"))
    call.no_more(1)
    call.stage.tick(ms)


def delete_records(call: VerbCall) -> None:
    """`delete-records`: an operator deletes everything below an offset, or below ``latest``, and waits for the ISR."""
    actor = _leading(call)
    if "before" not in call.options:
        raise call.wrong(None, "before=, the first offset that is kept")
    before = call.options["before"]
    offset = None if before.text == "latest" else Offset(call.integer(before))
    label = call.text_option("as", "deletion")
    call.stage.clients.delete(actor, offset, label=label, timeout_ms=call.duration_option("timeout", 30_000))


def retention(call: VerbCall) -> None:
    """`retention`: retention by size looks at the leader's log, each batch a segment of its own."""
    actor = _leading(call)
    if "bytes" not in call.options:
        raise call.wrong(None, "bytes=, what shall be left as retention.bytes says it")
    offset = _expired_upto(actor, call.integer(call.options["bytes"]))
    if offset is not None:
        call.stage.step(actor, events.RetentionFound(call.stage.now_ms, TP, offset))


def _leading(call: VerbCall) -> Actor:
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
    Verb("crash", crash),
    Verb("power-off", power_off, ("keep",)),
    Verb("restart", restart, ("unclean", "lose")),
    Verb("shutdown", shutdown),
    Verb("wipe", wipe),
    Verb("cut-log", cut_log, ("to",)),
    Verb("copy-disk", copy_disk),
    Verb("restore-disk", restore_disk),
    Verb("tick", tick),
    Verb("delete-records", delete_records, ("before", "as", "timeout")),
    Verb("retention", retention, ("bytes",)),
)
