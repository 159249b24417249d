"""The verbs of coordinators: init-producer, end-txn, deliver-markers, restart-coordinator, heartbeat, commit-offsets,
expect-txn, expect-offsets."""

from __future__ import annotations

from strandline.core.producer_ids import MAX_PRODUCER_EPOCH
from strandline.core.transactions.messages import InitProducerId, ProducerIdentity
from strandline_sim.scenario.call import Verb, VerbCall
from strandline_sim.scenario.coordinators import GroupCommit
from strandline_sim.scenario.language import Misuse, Word
from strandline_sim.scenario.nodes import SOURCE_PARTITIONS

_OUTCOMES = ("commit", "abort")


def init_producer(call: VerbCall) -> None:
    """`init-producer`: a process asks the coordinator for the identity of a transactional id."""
    process = call.word(0, "a process, such as P").text
    call.no_more(1)
    stage = call.stage
    transactional_id = call.text_option("of", process)
    if "epoch" in call.options:
        _used_before(call, transactional_id)
    request = InitProducerId(
        transactional_id=transactional_id,
        timeout_ms=call.duration_option("timeout", 60_000),
        given=_identity(call, "given", process) if "given" in call.options else None,
    )
    stage.transactions.init(process, request, call.text_option("as", f"init({process})"))


def _used_before(call: VerbCall, transactional_id: str) -> None:
    epoch = call.positive_option("epoch", 1)
    if epoch > MAX_PRODUCER_EPOCH or transactional_id in call.stage.transactions.ids:
        expected = f"an epoch from 1 to {MAX_PRODUCER_EPOCH}, of a transactional id that is new"
        raise call.wrong(call.options["epoch"], expected)
    call.stage.transactions.used_before(transactional_id, epoch - 1)


def _identity(call: VerbCall, option: str, process: str) -> ProducerIdentity:
    """An identity, written as ``1000:3``; ``own`` is that of the process."""
    word = call.options.get(option)
    producers = call.stage.clients.producers
    if word is None or word.text == "own":
        if process not in producers.epochs:
            raise call.wrong(word or call.words[0], "a process that has an identity (`init-producer`)")
        return ProducerIdentity(producers.id_of(process), producers.epochs[process])
    producer_id, _, epoch = word.text.partition(":")
    if not producer_id.isdecimal() or not epoch.isdecimal():
        raise call.wrong(word, "own, or a producer id and an epoch, such as 1000:0")
    return ProducerIdentity(int(producer_id), int(epoch))


def end_txn(call: VerbCall) -> None:
    """`end-txn`: a process ends its transaction; a late copy of its request has the ``identity`` of then."""
    process = call.word(0, "a process, such as P").text
    outcome = call.word(1, "commit or abort")
    call.no_more(2)
    if outcome.text not in _OUTCOMES:
        raise call.wrong(outcome, "commit or abort")
    identity = _identity(call, "identity", process)
    label = call.text_option("as", f"end({process})")
    call.stage.transactions.end(process, committed=outcome.text == "commit", identity=identity, label=label)


def deliver_markers(call: VerbCall) -> None:
    """`deliver-markers`: the markers that are under way arrive."""
    call.no_more(0)
    arrivals = list(call.stage.transactions.taken_markers())
    if not arrivals:
        raise call.wrong(None, "a marker that is under way", "none")
    for arrive in arrivals:
        arrive()


def restart_coordinator(call: VerbCall) -> None:
    """`restart-coordinator`: other nodes coordinate transactions and groups, with what was written."""
    call.no_more(0)
    call.stage.transactions.restart()
    call.stage.groups.restart()


def heartbeat(call: VerbCall) -> None:
    """`heartbeat`: a member of a group joins, or says that it lives and has what it was given."""
    group = call.word(0, "a group, such as G").text
    member = call.word(1, "a member, such as M").text
    call.no_more(2)
    session_ms = call.duration_option("session", 0) or None
    label = call.text_option("as", f"heartbeat({member})")
    call.stage.groups.heartbeat(group, member, session_ms=session_ms, label=label)


def commit_offsets(call: VerbCall) -> None:
    """`commit-offsets`: offsets of the topic that a group reads are committed, perhaps in a transaction."""
    group = call.word(0, "a group, such as G").text
    call.words.pop(0)
    offsets = tuple(
        (_partition(call, left), call.integer(right)) for left, right in call.pairs("a partition and an offset: 0=5")
    )
    member = call.options.get("member")
    process = call.options.get("producer")
    said = GroupCommit(
        group=group,
        offsets=offsets,
        member=None if member is None else member.text,
        member_epoch=call.maybe_integer("member-epoch"),
        producer=None if process is None else _identity(call, "identity", process.text),
    )
    call.stage.groups.commit(said, call.text_option("as", f"offsets({group})"))


def _partition(call: VerbCall, word: Word) -> int:
    partition = call.integer(word)
    if partition >= SOURCE_PARTITIONS:
        raise call.wrong(word, f"a partition from 0 to {SOURCE_PARTITIONS - 1}")
    return partition


def expect_txn(call: VerbCall) -> None:
    """`expect-txn`: state and identity of a transactional id at its coordinator: ``P=Ongoing@1000:0``."""
    for left, right in call.pairs("a transactional id, its state and identity, such as P=Ongoing@1000:0"):
        known = call.stage.transactions.ids.get(left.text)
        found = "none" if known is None else f"{known.state}@{':'.join(map(str, known.identity))}"
        if right.text != found:
            raise Misuse(right.column, f"the transaction of {left.text} is {right.text}", f"it is {found}")


def expect_offsets(call: VerbCall) -> None:
    """`expect-offsets`: what a group has committed for partitions: ``0=5 1=none``."""
    group = call.word(0, "a group, such as G").text
    call.words.pop(0)
    committed = call.stage.groups.offsets(group)
    for left, right in call.pairs("a partition and an offset, such as 0=5"):
        found = str(committed.get(_partition(call, left), "none"))
        if right.text != found:
            raise Misuse(right.column, f"the offset of {group} in {left.text} is {right.text}", f"it is {found}")


VERBS = (
    Verb("init-producer", init_producer, ("of", "given", "timeout", "epoch", "as")),
    Verb("end-txn", end_txn, ("identity", "as")),
    Verb("deliver-markers", deliver_markers),
    Verb("restart-coordinator", restart_coordinator),
    Verb("heartbeat", heartbeat, ("session", "as")),
    Verb("commit-offsets", commit_offsets, ("producer", "identity", "member", "member-epoch", "as")),
    Verb("expect-txn", expect_txn),
    Verb("expect-offsets", expect_offsets),
)
