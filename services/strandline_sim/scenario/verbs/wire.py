"""The verbs of the wire and of held disks: deliver, drop, duplicate, hold, release, partition, heal, stabilize."""

from __future__ import annotations

from strandline_sim.scenario.board import Envelope, Link
from strandline_sim.scenario.call import Verb, VerbCall
from strandline_sim.scenario.language import Word
from strandline_sim.scenario.nodes import Actor

KINDS = ("fetch", "fetched", "end-of-epoch", "offsets", "producers", "alter", "altered", "metadata")
_DISK = ".disk"
_ALL = "all"


def _is_link(word: Word) -> bool:
    return "->" in word.text


def _disk_of(call: VerbCall, word: Word) -> Actor | None:
    if not word.text.endswith(_DISK):
        return None
    return call.node(Word(word.text.removesuffix(_DISK), word.column))


def _targets(call: VerbCall) -> list[Word]:
    """The links and disks at the beginning of a command."""
    found: list[Word] = []
    for word in call.words:
        if not (_is_link(word) or word.text.endswith(_DISK)):
            break
        found.append(word)
    if not found:
        raise call.wrong(call.words[0] if call.words else None, "a link such as B->A, or a disk such as A.disk")
    return found


def _only_targets(call: VerbCall) -> list[Word]:
    """As `_targets`, and nothing behind them."""
    found = _targets(call)
    call.no_more(len(found))
    return found


def _kind(call: VerbCall, count: int, *others: str) -> str | None:
    """The word behind the links: a kind of message, or one of ``others``."""
    if len(call.words) <= count:
        return None
    word = call.words[count]
    if word.text not in (*KINDS, *others):
        raise call.wrong(word, f"a kind of message ({', '.join(KINDS)})")
    call.no_more(count + 1)
    return word.text


def _oldest(call: VerbCall, word: Word, kind: str | None) -> Envelope:
    for link in call.links(word):
        found = call.stage.wire.oldest(link, kind)
        if found is not None:
            return found
    there = ", ".join(map(str, call.stage.wire.waiting())) or "nothing is under way"
    raise call.wrong(word, f"a message{f' ({kind})' if kind else ''} on {word.text}", there)


def deliver(call: VerbCall) -> None:
    """`deliver`: let the oldest message of each link arrive, or of one kind, or ``all``; let a held commit complete."""
    targets = _targets(call)
    kind = _kind(call, len(targets), _ALL)
    everything, kind = kind == _ALL, None if kind == _ALL else kind
    for word in targets:
        actor = _disk_of(call, word)
        if actor is not None:
            _commit(call, word, actor)
            continue
        call.stage.deliver(_oldest(call, word, kind))
        if everything:
            _deliver_rest(call, word)


def _deliver_rest(call: VerbCall, word: Word) -> None:
    for link in call.links(word):
        while (found := call.stage.wire.oldest(link)) is not None:
            call.stage.deliver(found)


def _commit(call: VerbCall, word: Word, actor: Actor) -> None:
    if actor.commit is None:
        raise call.wrong(word, f"a commit under way on {actor.name}", "none")
    call.stage.complete_commit(actor)


def drop(call: VerbCall) -> None:
    """`drop`: lose the oldest message; its asker hears that there is no answer, unless ``silently``."""
    silently = call.words[-1].text == "silently" if call.words else False
    if silently:
        call.words.pop()
    targets = _targets(call)
    kind = _kind(call, len(targets))
    for word in targets:
        call.stage.lose(_oldest(call, word, kind), silently=silently)


def duplicate(call: VerbCall) -> None:
    """`duplicate`: put a copy of the oldest message at the end of its link."""
    targets = _targets(call)
    kind = _kind(call, len(targets))
    for word in targets:
        copy = call.stage.wire.duplicate(_oldest(call, word, kind))
        call.stage.tell(f"{copy.link} twice: {copy.text}")


def hold(call: VerbCall) -> None:
    """`hold`: `stabilize` leaves these links alone; commits of a held disk wait."""
    for word in _only_targets(call):
        actor = _disk_of(call, word)
        if actor is not None:
            actor.holds_commits = True
        else:
            call.stage.wire.held.update(call.links(word))


def release(call: VerbCall) -> None:
    """`release`: undo `hold`; ``*`` undoes all. A commit that was held completes."""
    if call.word(0, "a link, a disk, or *").text == "*":
        call.stage.wire.held.clear()
        for actor in call.stage.actors.values():
            _release_disk(call, actor)
        call.no_more(1)
        return
    for word in _only_targets(call):
        held = _disk_of(call, word)
        if held is not None:
            _release_disk(call, held)
        else:
            call.stage.wire.held.difference_update(call.links(word))


def _release_disk(call: VerbCall, actor: Actor) -> None:
    actor.holds_commits = False
    if actor.commit is not None:
        call.stage.complete_commit(actor)


def partition(call: VerbCall) -> None:
    """`partition`: cut links. Links are named, or two sides: ``partition A | B C ctl``."""
    texts = [word.text for word in call.words]
    if "|" not in texts:
        for word in _only_targets(call):
            call.stage.wire.cut.update(call.links(word))
        return
    at = texts.index("|")
    if not 0 < at < len(texts) - 1:
        raise call.wrong(call.words[at], "places on both sides of |")
    for left in call.words[:at]:
        for right in call.words[at + 1 :]:
            one, other = call.place(left), call.place(right)
            call.stage.wire.cut.update({Link(one, other), Link(other, one)})


def heal(call: VerbCall) -> None:
    """`heal`: undo cuts, of the links named or all of them."""
    if not call.words:
        call.stage.wire.cut.clear()
    for word in call.words:
        call.stage.wire.cut.difference_update(call.links(word))


def stabilize(call: VerbCall) -> None:
    """`stabilize`: deliver until nothing moves; with a duration let that time pass as well. Messages are not
    printed."""
    call.no_more(1)
    stage = call.stage
    stage.tells_messages = False
    stage.settle()
    if call.words:
        stage.tick(call.duration_ms(call.words[0]), settle=True)
    stage.tells_messages = True


def messages(call: VerbCall) -> None:
    """`messages`: list what is under way."""
    call.no_more(0)
    for envelope in call.stage.wire.waiting():
        held = " (held)" if envelope.link in call.stage.wire.held else ""
        call.stage.tell(f"{envelope}{held}")


VERBS = (
    Verb("deliver", deliver),
    Verb("drop", drop),
    Verb("duplicate", duplicate),
    Verb("hold", hold),
    Verb("release", release),
    Verb("partition", partition),
    Verb("heal", heal),
    Verb("stabilize", stabilize),
    Verb("messages", messages),
)
