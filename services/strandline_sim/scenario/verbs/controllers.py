"""The verbs of several controllers and their store: who reigns, who is stopped, what the store loses."""

from __future__ import annotations

from strandline.core.reigns.events import HandOverAsked, PeerLost
from strandline_sim.scenario.call import Verb, VerbCall
from strandline_sim.scenario.language import Misuse, Word
from strandline_sim.scenario.several import ScenarioController, Several
from strandline_sim.scenario.wire import CONTROLLER

_STORE = ("away", "back", "full", "lag", "lose-answer", "lose-request", "restore")


def controllers(call: VerbCall) -> None:
    """`controllers`: name several controllers, before the first `nodes`; the first one reigns."""
    control, first = call.stage.control, call.word(0, "the names of controllers, such as c1 c2")
    if control.core is not None or control.reigns is not None:
        raise call.wrong(first, "`controllers` once, before the first `nodes`")
    names = [word.text for word in call.words]
    for at, word in enumerate(call.words):
        if not word.text.isalnum() or word.text == "ctl" or word.text in names[:at]:
            raise call.wrong(word, "a new name of letters and digits, not ctl")
    call.stage.several = control.reigns = several = Several(control, names)
    several.start()
    call.stage.lines.clear()


def _several(call: VerbCall) -> Several:
    several = call.stage.several
    if several is None:
        raise call.wrong(call.command.words[0], "`controllers` before this")
    return several


def _member(call: VerbCall, word: Word) -> ScenarioController:
    members = _several(call).members
    if word.text not in members:
        raise call.wrong(word, f"a controller ({', '.join(members)})")
    return members[word.text]


def take_over(call: VerbCall) -> None:
    """`take-over`: a standby finds nobody at the address of the one who reigns, and takes its key."""
    several, word = _several(call), call.word(0, "a controller")
    member = _member(call, word)
    call.no_more(1)
    key = several.store.key
    if key is not None and key.controller_id == member.name:
        raise call.wrong(word, "a controller that does not hold the key")
    if key is not None:
        several.take(member, PeerLost(call.stage.now_ms, key.token))


def hand_over(call: VerbCall) -> None:
    """`hand-over`: the one who reigns gives up its key; with a second name that one is to have it."""
    several = _several(call)
    member = _member(call, call.word(0, "a controller"))
    to = _member(call, call.words[1]).name if len(call.words) > 1 else None
    call.no_more(2)
    several.take(member, HandOverAsked(call.stage.now_ms, to))


def pause_controller(call: VerbCall) -> None:
    """`pause-controller`: SIGSTOP: what it is given, and was about to send, waits; ``at-key``: once it wins the key."""
    member = _member(call, call.word(0, "a controller"))
    call.no_more(2)
    if len(call.words) == 1:
        member.is_paused = True
    elif call.words[1].text == "at-key":
        member.stops_at_key = True
    else:
        raise call.wrong(call.words[1], "at-key, or nothing more")


def resume_controller(call: VerbCall) -> None:
    """`resume-controller`: SIGCONT: what it was about to send is sent, then it looks at the time."""
    word = call.word(0, "a controller")
    member = _member(call, word)
    call.no_more(1)
    if not member.is_paused:
        raise call.wrong(word, "a controller that is paused")
    _several(call).resume(member)


def end_lease(call: VerbCall) -> None:
    """`end-lease`: the store ends a controller's lease, in time or not; its key goes with it."""
    several, word = _several(call), call.word(0, "a controller")
    member = _member(call, word)
    call.no_more(1)
    lease_id = member.core._lease.lease_id
    if lease_id is None:
        raise call.wrong(word, "a controller with a lease")
    several.store.end_lease(lease_id)
    several.tell_all()


def store(call: VerbCall) -> None:
    """`store`: it has no quorum, no space, or watches that lag; is well again; loses a write; is an older copy."""
    several, word = _several(call), call.word(0, f"one of {', '.join(_STORE)}")
    call.no_more(2 if word.text == "restore" else 1)
    match word.text:
        case "away":
            several.store.is_away = True
        case "full":
            several.store.is_full = True
        case "lag":
            several.store.lags = True
        case "back":
            several.store.is_away = several.store.is_full = several.store.lags = False
            several.tell_all()
        case "lose-answer" | "lose-request":
            several.store.loses = word.text.removeprefix("lose-")
        case "restore":
            _restore(call, several)
        case _:
            raise call.wrong(word, f"one of {', '.join(_STORE)}")


def _restore(call: VerbCall, several: Several) -> None:
    """The store is as it was before its last transactions; who reigns finds out by asking it."""
    word = call.word(1, "how many transactions it lacks")
    lost, there = call.integer(word), len(several.store.heads)
    if not 0 < lost < there:
        raise call.wrong(word, f"a number from 1 to {there - 1}, as the store has {there} transactions")
    call.stage.control.lose_transactions(lost)
    several.store.restore(there - lost)


def recover(call: VerbCall) -> None:
    """`recover`: an operator makes a store from what the nodes have on disk, and starts every controller."""
    call.no_more(0)
    if call.stage.control.position() is None:
        raise call.wrong(call.command.words[0], "`nodes` before this")
    call.stage.control.recover()


def expect_active(call: VerbCall) -> None:
    """`expect-active`: who serves, and with ``epoch=`` its controller epoch; ``none`` if nobody does."""
    control, word = call.stage.control, call.word(0, "a controller, ctl, or none")
    call.no_more(1)
    several = call.stage.several
    active = several.active if several is not None else None
    found = "none" if control.core is None else active.name if active is not None else CONTROLLER
    if found != word.text:
        raise Misuse(word.column, f"the active controller is {word.text}", f"the active controller is {found}")
    if "epoch" in call.options and control.core is not None:
        right, epoch = call.options["epoch"], str(control.core.state.header.controller_epoch)
        if right.text != epoch:
            raise Misuse(right.column, f"the controller epoch is {right.text}", f"the controller epoch is {epoch}")


VERBS = (
    Verb("controllers", controllers),
    Verb("take-over", take_over),
    Verb("hand-over", hand_over),
    Verb("pause-controller", pause_controller),
    Verb("resume-controller", resume_controller),
    Verb("end-lease", end_lease),
    Verb("store", store),
    Verb("recover", recover),
    Verb("expect-active", expect_active, ("epoch",)),
)
