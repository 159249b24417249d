"""The verbs of callers: produce, append, begin, consent, commit, abort, fetch, consume, list-offsets, show."""

from __future__ import annotations

from strandline.core.messages import EARLIEST, LATEST, FetchPartition, OffsetQuestion, ReplicaState
from strandline.core.types import Acks, LeaderEpoch, Marker, NodeEpoch, Offset
from strandline_sim.scenario import transactions
from strandline_sim.scenario.call import Verb, VerbCall
from strandline_sim.scenario.clients import consumer_of
from strandline_sim.scenario.nodes import TP, Actor
from strandline_sim.scenario.telling import sight_of
from strandline_sim.scenario.verbs.scene import RECORD_BYTES

_ACKS = {"all": Acks.ALL, "1": Acks.LEADER, "0": Acks.NONE}
_FETCH = "fetch"
_BELIEVED = "believed"
_TO_CLIENT = "->client"


def produce(call: VerbCall) -> None:
    """`produce`: send records to a node, or to the ``believed`` leader, each as a request and a batch of its own."""
    _produce(call, _ACKS[call.text_option("acks", "all", tuple(_ACKS))])


def append(call: VerbCall) -> None:
    """`append`: produce with acks=0, without an answer."""
    _produce(call, Acks.NONE)


def _produce(call: VerbCall, acks: Acks) -> None:
    stage = call.stage
    actor = _asked(call)
    call.word(1, "a record")
    records = [(value, word) for word in call.words[1:] for value in call.records(word)]
    producers = stage.clients.producers
    producer, sequence = call.options.get("producer"), call.maybe_integer("sequence")
    if producer is None and sequence is not None:
        raise call.wrong(call.options["sequence"], "producer= beside a sequence")
    if producer is not None and sequence is None:
        sequence = stage.clients.producers.next_sequence.get(producer.text, 0)
    for values in transactions.in_batches([value for value, _ in records], call.positive_option("batch", 1)):
        label = call.text_option("as", transactions.named(values))
        again = next((v for v in (label, *values[1:]) if v in stage.clients.calls), None)
        if again is not None and acks is not Acks.NONE:
            word = next(word for value, word in reversed(records) if value in (again, values[0]))
            raise call.wrong(word, "a record that was not produced yet, or another name for it with as=", f"{again!r}")
        batch = transactions.header(
            count=len(values),
            size_bytes=call.integer_option("size", RECORD_BYTES),
            stamp=None if producer is None else producers.stamp(producer.text, sequence or 0),
            attributes=0 if producer is None else producers.attributes(producer.text),
        )
        timeout_ms = call.duration_option("timeout", 30_000)
        stage.clients.produce(actor, batch, values, label=label, acks=acks, timeout_ms=timeout_ms)
        if producer is not None and sequence is not None:
            sequence += len(values)
            producers.next_sequence[producer.text] = sequence


def begin(call: VerbCall) -> None:
    """`begin`: a producer begins a transaction; whatever it produces from now on is of transactions."""
    name = call.word(0, "a producer, such as P").text
    call.no_more(1)
    is_late = call.text_option("consent", "now", ("now", "late")) == "late"
    call.stage.clients.producers.begin(name, is_late=is_late)


def consent(call: VerbCall) -> None:
    """`consent`: what the coordinator answered about the partitions of a transaction arrives."""
    word = call.word(0, "a producer that began with consent=late")
    call.no_more(1)
    answers = call.stage.clients.producers.let_go(word.text)
    if not answers:
        raise call.wrong(word, f"a leader that waits for the coordinator of {word.text}", "none")
    for arrive in answers:
        arrive()


def commit(call: VerbCall) -> None:
    """`commit`: the coordinator ends a producer's transaction in the partition that a node leads."""
    _end(call, committed=True)


def abort(call: VerbCall) -> None:
    """`abort`: as `commit`, with the other outcome."""
    _end(call, committed=False)


def _end(call: VerbCall, *, committed: bool) -> None:
    stage, producers = call.stage, call.stage.clients.producers
    actor = _asked(call)
    name = call.word(1, "the producer, such as P").text
    call.no_more(2)
    epoch = call.integer_option("epoch", producers.epochs.get(name, 0) + 1)
    said = Marker(committed, call.integer_option("coordinator", 0))
    value = f"{'commit' if committed else 'abort'}({name})"
    batch = transactions.marker(said, producers.stamp(name, -1, epoch))
    timeout_ms = call.duration_option("timeout", 30_000)
    label = call.text_option("as", value)
    if label in stage.clients.calls:
        raise call.wrong(call.words[1], "another name for this marker with as=", f"{label!r} again")
    producers.end(name, epoch)
    stage.clients.produce(actor, batch, (value,), label=label, acks=Acks.ALL, timeout_ms=timeout_ms)


def _asked(call: VerbCall) -> Actor:
    word = call.word(0, "the node that is asked, or believed")
    if word.text != _BELIEVED:
        return call.running(word)
    leader = call.stage.clients.belief.leader
    if leader is None:
        raise call.wrong(word, "a node, for the client knows of no leader yet (`serve-metadata`)")
    return call.running(word._replace(text=call.stage.names.name(leader)))


def serve_metadata(call: VerbCall) -> None:
    """`serve-metadata`: a node serves the metadata that it holds to the client, which believes it or not."""
    stage = call.stage
    word = call.word(0, f"a node that serves the client, such as A{_TO_CLIENT}")
    call.no_more(1)
    if not word.text.endswith(_TO_CLIENT):
        raise call.wrong(word, f"a node that serves the client, such as A{_TO_CLIENT}")
    actor = call.running(word._replace(text=word.text.removesuffix(_TO_CLIENT)))
    seen, belief = actor.disk.seen, stage.clients.belief
    if seen is None:
        stage.tell(f"client: {actor.name} has no metadata")
    elif belief.take(seen):
        leader = "none" if belief.leader is None else stage.names.name(belief.leader)
        stage.tell(f"client: believes {actor.name}, leader={leader}")
    else:
        stage.tell(f"client: ignores {actor.name}, whose metadata is older")


def fetch(call: VerbCall) -> None:
    """`fetch`: one Fetch by hand, of a node (``as=B``) or of a consumer. What is not said is right."""
    stage = call.stage
    actor = call.running(call.word(0, "the node that is asked"))
    call.no_more(1)
    replica = _identity(call)
    part = _honest_part(call, actor) if replica else _consumer_part(call)
    stage.clients.fetch(
        actor,
        part,
        label=call.text_option("label", _FETCH),
        replica=replica,
        wait_ms=call.duration_option("wait", 0),
        min_bytes=call.integer_option("min-bytes", 1),
        at_follower=call.text_option("service", "leader", ("leader", "follower")) == "follower",
        read_committed=_is_committed(call),
    )


def _is_committed(call: VerbCall) -> bool:
    return call.text_option("isolation", "all", ("all", "committed")) == "committed"


def _identity(call: VerbCall) -> ReplicaState | None:
    word = call.options.get("as")
    if word is None or word.text == "consumer":
        return None
    asker = call.node(word)
    known = call.stage.control.registered_epoch(asker)
    return ReplicaState(asker.node_id, NodeEpoch(call.integer_option("node-epoch", known)))


def _consumer_part(call: VerbCall) -> FetchPartition:
    epoch = call.maybe_integer("epoch")
    current = None if epoch is None else LeaderEpoch(epoch)
    return FetchPartition(TP, Offset(call.integer_option("offset", 0)), current, max_bytes=_max_bytes(call))


def _max_bytes(call: VerbCall) -> int:
    return call.integer_option("max-bytes", 1 << 20)


def _honest_part(call: VerbCall, actor: Actor) -> FetchPartition:
    """What a replica at that offset would ask: the current epoch, and the leader's epoch of the record before."""
    offset = call.integer_option("offset", 0)
    core = actor.core
    assert core is not None
    log, image = core.state.logs.get(TP), core.state.images.get(TP)
    last = log.epochs.epoch_of(Offset(min(offset, log.leo) - 1)) if log and offset > log.log_start_offset else None
    if "last-epoch" in call.options:
        last = LeaderEpoch(call.integer_option("last-epoch", 0)) if call.options["last-epoch"].text != "none" else None
    current = LeaderEpoch(call.integer_option("epoch", image.leader_epoch if image else 0))
    start = Offset(offset if last is None else 0)
    return FetchPartition(TP, Offset(offset), current, last, start, _max_bytes(call))


def consume(call: VerbCall) -> None:
    """`consume`: what a consumer gets from a node that leads or follows, from ``offset`` on."""
    stage = call.stage
    actor = call.running(call.word(0, "the node that is asked"))
    call.no_more(1)
    assert actor.core is not None
    follows = TP in actor.core.state.followers
    start = actor.log.log_start
    part = FetchPartition(TP, Offset(call.integer_option("offset", start)), max_bytes=_max_bytes(call))
    label = consumer_of(actor.name)
    stage.clients.fetch(
        actor,
        part,
        label=label,
        replica=None,
        wait_ms=0,
        min_bytes=1,
        at_follower=follows,
        read_committed=_is_committed(call),
    )


def list_offsets(call: VerbCall) -> None:
    """`list-offsets`: ask for ``latest`` or ``earliest``, as a consumer or as a node."""
    actor = call.running(call.word(0, "the node that is asked"))
    which = call.word(1, "latest or earliest")
    call.no_more(2)
    if which.text not in ("latest", "earliest"):
        raise call.wrong(which, "latest or earliest")
    question = OffsetQuestion(TP, LATEST if which.text == "latest" else EARLIEST, None, _is_committed(call))
    call.stage.clients.list_offsets(actor, question, label=which.text, replica=_identity(call))


def show(call: VerbCall) -> None:
    """`show`: draw the logs of the nodes named, or of all; ``|`` stands where the HW is."""
    stage = call.stage
    actors = [call.node(word) for word in call.words] or list(stage.actors.values())
    width = max((len(actor.name) for actor in actors), default=0)
    for actor in actors:
        stage.tell(f"{actor.name:{width}} {_drawn(actor)}")


def _drawn(actor: Actor) -> str:
    sight = sight_of(actor.core)
    hw = sight.hw if sight.role else actor.log.hw_cached
    below = transactions.shown_records(transactions.records_of(actor.log, None, hw))
    above = transactions.shown_records(transactions.records_of(actor.log, max(hw, actor.log.log_start)))
    role = f"{sight.role} {sight.epoch}" if sight.role else "no replica" if actor.is_running else "down"
    log = " ".join(part for part in (below, "|", above) if part != transactions.EMPTY)
    return f"{role}: {log} (leo {actor.log.leo}, hw {hw}, epochs {transactions.shown_epochs(actor.log.epochs)})"


VERBS = (
    Verb("produce", produce, ("acks", "as", "timeout", "size", "batch", "producer", "sequence")),
    Verb("append", append, ("size", "batch")),
    Verb("begin", begin, ("consent",)),
    Verb("consent", consent),
    Verb("commit", commit, ("as", "timeout", "epoch", "coordinator")),
    Verb("abort", abort, ("as", "timeout", "epoch", "coordinator")),
    Verb("serve-metadata", serve_metadata),
    Verb(
        "fetch",
        fetch,
        (
            "as",
            "offset",
            "epoch",
            "last-epoch",
            "wait",
            "min-bytes",
            "max-bytes",
            "node-epoch",
            "service",
            "label",
            "isolation",
        ),
    ),
    Verb("consume", consume, ("offset", "max-bytes", "isolation")),
    Verb("list-offsets", list_offsets, ("as", "node-epoch", "isolation")),
    Verb("show", show),
)
