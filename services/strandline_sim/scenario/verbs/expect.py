"""The verbs that claim something: each prints nothing, and fails with what was expected and what is."""

from __future__ import annotations

from collections.abc import Callable

from strandline.core.control.recovery import position_sent
from strandline.core.errors import ErrorCode
from strandline.core.log.node import NodeCore
from strandline.core.messages import Position
from strandline_sim.scenario.board import CONTROLLER
from strandline_sim.scenario.call import Verb, VerbCall
from strandline_sim.scenario.clients import NO_ANSWER, WAITING, CallerRequest as Asked, consumer_of
from strandline_sim.scenario.language import Misuse, Word
from strandline_sim.scenario.nodes import TP, Actor
from strandline_sim.scenario.telling import number, sight_of
from strandline_sim.scenario.transactions import EMPTY, records_in, records_of, shown_epochs
from strandline_sim.scenario.truth import CHECKED


def _claim(word: Word, what: str, expected: str, actual: str) -> None:
    if expected != actual:
        raise Misuse(word.column, f"{what} is {expected}", f"{what} is {actual}")


def expect_log(call: VerbCall) -> None:
    """`expect-log`: the records of a log, ``empty``, or that several logs are equal (``A = B``)."""
    first = call.word(0, "a node")
    if len(call.words) > 1 and call.words[1].text == "=":
        _equal_logs(call, first)
        return
    actor = call.node(first)
    wanted = [shown for word in call.words[1:] for shown in _expected_records(call, word)]
    if not call.words[1:]:
        raise call.wrong(None, "records such as m0@0, or empty")
    found = list(records_of(actor.log, call.maybe_integer("from")))
    shown = " ".join(map(str, found)) or EMPTY
    _claim(call.words[1], f"the log of {actor.name}", " ".join(wanted) or EMPTY, shown)


def _expected_records(call: VerbCall, word: Word) -> list[str]:
    if word.text == EMPTY:
        return []
    value, at, epoch = word.text.rpartition("@")
    if not at or not epoch.isdecimal():
        raise call.wrong(word, "a record and its epoch, such as m0@0")
    return [f"{one}@{epoch}" for one in call.expanded(word, value)]


def _equal_logs(call: VerbCall, first: Word) -> None:
    words = [word for word in call.words if word.text != "="]
    if len(words) < 2 or call.words[-1].text == "=":
        raise call.wrong(None, "a node whose log shall be equal")
    wanted = " ".join(map(str, records_of(call.node(first).log))) or EMPTY
    for word in words[1:]:
        actor = call.node(word)
        _claim(word, f"the log of {actor.name}", wanted, " ".join(map(str, records_of(actor.log))) or EMPTY)


def expect_producer_ids(call: VerbCall) -> None:
    """`expect-producer-ids`: where the newest block of producer ids of a node begins, or ``none``."""
    given = call.stage.control.producer_ids
    for left, right in call.pairs("a node and the first id of its block, such as A=1000"):
        actor = call.node(left)
        found = str(given[actor.name]) if actor.name in given else "none"
        _claim(right, f"the first producer id of {actor.name}", right.text, found)


def expect_read(call: VerbCall) -> None:
    """`expect-read`: what a consumer got from a node, or a fetch by its label: records, ``empty``, or an error."""
    word = call.word(0, "a node that was consumed from, or the label of a fetch")
    calls = call.stage.clients.calls
    found = calls.get(word.text) or calls.get(consumer_of(word.text))
    if found is None or found.start is None:
        raise call.wrong(word, "a node that was consumed from, or the label of a fetch")
    first = call.word(1, "records such as m0@0, empty, or an error")
    if first.text in ErrorCode.__members__:
        call.no_more(2)
        wanted = first.text
    else:
        wanted = " ".join(shown for each in call.words[1:] for shown in _expected_records(call, each)) or EMPTY
    _claim(first, f"what was read from {word.text}", wanted, _read(found))


def _read(found: Asked) -> str:
    if found.received is None:
        return found.text
    if found.code is not None and found.code is not ErrorCode.NONE:
        return found.code.name
    assert found.start is not None
    payloads = found.received.payload if isinstance(found.received.payload, tuple) else ()
    batches = zip(found.received.batches, payloads, strict=True)
    records = [record for batch, payload in batches for record in records_in(batch, payload)]
    return " ".join(str(record) for record in records if record.offset >= found.start) or EMPTY


def _core(call: VerbCall, word: Word) -> tuple[Actor, NodeCore]:
    actor = call.running(word)
    assert actor.core is not None
    if TP not in actor.core.state.logs:
        raise call.wrong(word, "a node with a replica", f"{actor.name}, which has none")
    return actor, actor.core


def _numbers(what: str, look: Callable[[NodeCore], int]) -> Callable[[VerbCall], None]:
    def expect(call: VerbCall) -> None:
        for left, right in call.pairs(f"a node and its {what}, such as A=2"):
            actor, core = _core(call, left)
            _claim(right, f"the {what} of {actor.name}", str(call.integer(right)), str(look(core)))

    return expect


expect_hw = _numbers("hw", lambda core: core.state.logs[TP].hw)
expect_log_start = _numbers("log start", lambda core: core.state.logs[TP].log_start_offset)
expect_leo = _numbers("leo", lambda core: core.state.logs[TP].leo)
expect_lso = _numbers("lso", lambda core: core.state.logs[TP].lso)


def expect_remote(call: VerbCall) -> None:
    """`expect-remote`: what a leader knows of its followers' log ends; ``none`` if it has not heard of one."""
    actor, core = _core(call, call.word(0, "the leading node"))
    leader = core.state.leaders.get(TP)
    if leader is None:
        raise call.wrong(call.words[0], "a node that leads", f"{actor.name}, which does not")
    call.words.pop(0)
    for left, right in call.pairs("a follower and its log end, such as B=1"):
        follower = call.node(left)
        progress = leader.progress.get(follower.node_id)
        found = number(progress.remote_leo if progress else None)
        _claim(right, f"the remote leo of {follower.name} at {actor.name}", right.text, found)


def expect_isr(call: VerbCall) -> None:
    """`expect-isr`: the ISR as the controller committed it (``ctl=A,B``) or as a leader sees it (``A=A,B``)."""
    for left, right in call.pairs("ctl or a leader, and the members: ctl=A,B"):
        found = call.stage.names.shown(_isr_at(call, left))
        wanted = right.text if sorted(right.text.split(",")) != sorted(found.split(",")) else found
        _claim(right, f"the isr at {left.text}", wanted, found)


def _isr_at(call: VerbCall, word: Word) -> tuple[int, ...]:
    if word.text == CONTROLLER:
        partition = call.stage.control.partition()
        return partition.isr if partition else ()
    actor, core = _core(call, word)
    sight = sight_of(core)
    if sight.role != "leads":
        raise call.wrong(word, "ctl or a node that leads", f"{actor.name}, which does not")
    return sight.isr


def expect_elr(call: VerbCall) -> None:
    """`expect-elr`: the eligible leader replicas at the controller."""
    word = call.word(0, "the members, or none")
    call.no_more(1)
    partition = call.stage.control.partition()
    _claim(word, "the elr", word.text, call.stage.names.shown(partition.elr if partition else ()))


def expect_leader(call: VerbCall) -> None:
    """`expect-leader`: the leader at the controller, and with ``epoch=`` its epoch."""
    word = call.word(0, "a node, or none")
    call.no_more(1)
    partition = call.stage.control.partition()
    _claim(word, "the leader", word.text, call.stage.names.name(partition.leader if partition else None))
    if "epoch" in call.options and partition is not None:
        right = call.options["epoch"]
        _claim(right, "the leader epoch", right.text, str(partition.leader_epoch))


def expect_position(call: VerbCall) -> None:
    """`expect-position`: reign and metadata offset, ``1:8``, of the store or of the newest image on a node's disk."""
    for left, right in call.pairs("ctl or a node, and its position: A=1:8"):
        position = _position_of(call, left)
        found = "none" if position is None else f"{int(position.reign_id, 16)}:{position.metadata_offset}"
        _claim(right, f"the position of {left.text}", right.text, found)


def _position_of(call: VerbCall, word: Word) -> Position | None:
    if word.text == CONTROLLER:
        return call.stage.control.position()
    seen = call.node(word).disk.seen
    return position_sent(seen) if seen is not None else None


def expect_epochs(call: VerbCall) -> None:
    """`expect-epochs`: a node's epoch cache: ``0@0 2@5`` says that epoch 2 begins at offset 5."""
    actor, core = _core(call, call.word(0, "a node"))
    first = call.word(1, "entries such as 0@0, or empty")
    wanted = " ".join(word.text for word in call.words[1:])
    _claim(first, f"the epochs of {actor.name}", wanted, shown_epochs(core.state.logs[TP].epochs.entries))


def expect_state(call: VerbCall) -> None:
    """`expect-state`: what a node does: leads, follows, waiting, truncating, fetching, failed, down."""
    for left, right in call.pairs("a node and its state, such as B=truncating"):
        actor = call.node(left)
        sight = sight_of(actor.core)
        found = sight.state or sight.role or ("none" if actor.is_running else "down")
        allowed = (sight.role, found) if sight.role else (found,)
        _claim(right, f"the state of {actor.name}", right.text, right.text if right.text in allowed else found)


def expect_error(call: VerbCall) -> None:
    """`expect-error`: how a call ended: a produce by its name, ``fetch``, ``latest``, ``alter``, ``unregister``."""
    word = call.word(0, "a call")
    wanted = call.word(1, "an error such as NOT_LEADER_OR_FOLLOWER, or NONE")
    call.no_more(2)
    found = call.stage.clients.calls.get(word.text)
    if found is None:
        raise call.wrong(word, f"a call ({', '.join(call.stage.clients.calls) or 'none was made'})")
    if wanted.text not in ErrorCode.__members__:
        raise call.wrong(wanted, "the name of an error, as docs/PROTOCOL.md and Kafka have it")
    _claim(wanted, f"the answer to {word.text}", wanted.text, found.text if found.code is None else found.code.name)


def expect_acks(call: VerbCall) -> None:
    """`expect-acks`: the fate of produces and deletions: ``acked``, ``acked@1``, ``waiting``, ``refused``, ``lost``."""
    for left, right in call.pairs("a produce or a deletion and its fate, such as m1=acked"):
        found = call.stage.clients.calls.get(left.text)
        if found is None:
            raise call.wrong(left, "a record that was produced, or the label of a deletion")
        fate = _fate(found.text, found.code)
        with_offset = f"{fate}@{found.offset_of(left.text)}" if fate == "acked" and "@" in right.text else fate
        _claim(right, left.text, right.text, with_offset)


def _fate(text: str, code: ErrorCode | None) -> str:
    if text == WAITING:
        return "waiting"
    if text == NO_ANSWER or code is None:
        return "lost"
    return "acked" if code is ErrorCode.NONE else "refused"


def expect_invariant(call: VerbCall) -> None:
    """`expect-invariant`: that a property was broken in this run or not; ``all hold`` for every one."""
    word = call.word(0, f"all, or one of {', '.join(CHECKED)}")
    wanted = call.word(1, "holds or broken")
    call.no_more(2)
    broken = call.stage.truth.broken
    if word.text == "all":
        if wanted.text not in ("hold", "holds"):
            raise call.wrong(wanted, "hold")
        if broken:
            raise Misuse(word.column, "no property was broken", "; ".join(f"{k}: {v}" for k, v in broken.items()))
        return
    if word.text not in CHECKED:
        raise call.wrong(word, f"all, or one of {', '.join(CHECKED)}")
    if wanted.text not in ("holds", "broken"):
        raise call.wrong(wanted, "holds or broken")
    found = f"{word.text} is broken: {broken[word.text]}" if word.text in broken else f"{word.text} holds"
    if (word.text in broken) != (wanted.text == "broken"):
        expected = f"{word.text} {'is ' if wanted.text == 'broken' else ''}{wanted.text}"
        raise Misuse(wanted.column, expected, found)


VERBS = (
    Verb("expect-log", expect_log, ("from",)),
    Verb("expect-log-start", expect_log_start),
    Verb("expect-producer-ids", expect_producer_ids),
    Verb("expect-read", expect_read),
    Verb("expect-hw", expect_hw),
    Verb("expect-leo", expect_leo),
    Verb("expect-lso", expect_lso),
    Verb("expect-remote", expect_remote),
    Verb("expect-isr", expect_isr),
    Verb("expect-elr", expect_elr),
    Verb("expect-leader", expect_leader, ("epoch",)),
    Verb("expect-position", expect_position),
    Verb("expect-epochs", expect_epochs),
    Verb("expect-state", expect_state),
    Verb("expect-error", expect_error),
    Verb("expect-acks", expect_acks),
    Verb("expect-invariant", expect_invariant),
)
