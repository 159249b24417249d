"""Mutants of the controllers' store: what is compared before it is written, and what is read again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mutants.mutant import MUTANTS, Mutant, Real, Swap, mutant

from strandline.controller.driver import ControllerDriver
from strandline.core import producer_ids
from strandline.core.control import recovery
from strandline.core.control.controller import PRODUCER_IDS_SKIPPED, ControllerCore
from strandline.core.control.draft import Draft
from strandline.core.control.election import in_assignment_order
from strandline.core.control.events import Commit, ControllerEffect, ControllerStarted
from strandline.core.messages import PartitionImage
from strandline.core.reigns.effects import Append, AppendSettled, Settled
from strandline.core.reigns.events import Head, Holder
from strandline.core.reigns.reign import ReignCore
from strandline.metadata.etcd_layout import LogValue
from strandline.runtime.driver import Driver
from strandline_sim.control import stored_values
from strandline_sim.control.stored_values import KEYS, StoredValues

# 27, 28, 34: a store of several controllers that compares too little before it writes.

_PROFILES = "controllers store-trouble"


@mutant(stored_values, "may_append", "tr22_append_of_a_paused_controller", profiles=_PROFILES)
def _only_the_head(real: Real, key: Holder | None, head: Head | None, token: int, after: int) -> bool:
    """27: append without the token (C7; TR22).

    A batch is written, no matter who holds the election key.
    """
    return (0 if head is None else head.revision) == after


@mutant(stored_values, "may_append", "tr23_key_of_a_third_controller", profiles=_PROFILES)
def _that_the_key_exists(real: Real, key: Holder | None, head: Head | None, token: int, after: int) -> bool:
    """28: append compares that the key exists (C7; TR23).

    A batch is written while anybody holds the election key.
    """
    return key is not None and (0 if head is None else head.revision) == after


@mutant(stored_values, "key_after_taking", "tr24_key_taken_by_a_put", profiles=_PROFILES)
def _put_over(real: Real, key: Holder | None, token: int, taker: Holder) -> Holder | None:
    """34: key taken by a put over it (C3; TR24).

    A controller that takes the election key puts over it, and so keeps its create revision.
    """
    return taker if key is not None and key.token == token else key


# 29a, 29b: an append without an answer is taken for done, or for refused.


def _guess(settled: Settled) -> Any:
    def unanswered(real: Real, self: ReignCore, event: Any, question: Any) -> None:
        batch = self._batch_of(question.effect) if isinstance(question.effect, Append) else None
        reign = self._reign
        if batch is None or reign is None:
            real(self, event, question)
            return
        real.differs()
        reign.batch = None
        self._out.append(AppendSettled(batch.head, settled))

    return unanswered


MUTANTS += (
    Mutant(
        number="29a",
        name="unknown outcome taken for done",
        broken="An append whose answer was lost is answered as stored.",
        source="C9; TR25",
        tests=("tests/core/test_reign.py::test_unknown_append_that_was_not_made",),
        scenario="tr25_request_of_an_append_is_lost",
        profiles=("store-trouble", "controllers"),
        swaps=(Swap(ReignCore, "_unanswered", _guess(Settled.DONE), pure=False),),
    ),
    Mutant(
        number="29b",
        name="unknown outcome taken for refused",
        broken="An append whose answer was lost is answered as refused.",
        source="C9; TR25",
        tests=("tests/core/test_reign.py::test_unknown_append_that_was_made",),
        scenario="tr25_answer_of_an_append_is_lost",
        profiles=("store-trouble", "controllers"),
        swaps=(Swap(ReignCore, "_unanswered", _guess(Settled.REFUSED), pure=False),),
    ),
)


@mutant(
    ReignCore,
    "_won",
    "tr26_watch_that_lags",
    tests="tests/core/test_reign.py::test_catching_up_reads_what_is_missing",
    profiles="controllers",
    pure=False,
)
def _believing(real: Real, self: ReignCore, token: int, revision: int) -> None:
    """30: head not read at a take-over (C18; TR26).

    A reign begins from what the watch has brought.
    """
    real(self, token, revision)
    real.differs()
    assert self._reign is not None
    self._reign.head, self._reign.is_head_read = self.applied, True


@mutant(ControllerDriver, "carry_out", profiles="controllers", pure=False)
def _at_once(real: Real, self: ControllerDriver, effects: Sequence[ControllerEffect]) -> Any:
    """32: answer before the append (C9; M55).

    The controller answers and publishes a change before it is stored.
    """
    commits = [effect for effect in effects if isinstance(effect, Commit)]
    if commits:
        real.differs()
        self._pending += commits
        self._work.set()
    return Driver.carry_out(self, [effect for effect in effects if not isinstance(effect, Commit)])


def _of_any_reign(real: Real, stored: StoredValues, taken: LogValue) -> tuple[bytes, ...]:
    """The parts of the first reign that left any for this offset."""
    own = real(stored, taken)
    offset = b"/%016x/" % taken.head.offset
    found = [(key, each.value) for key, each in stored.range(*KEYS.all_parts) if offset in key]
    first = tuple(value for key, value in found if key.partition(offset)[0] == found[0][0].partition(offset)[0])
    if first != own:
        real.differs()
    return first


def _unchecked(real: Real, taken: LogValue, parts: Sequence[bytes]) -> bytes | None:
    """Whatever the parts are."""
    packed = b"".join(parts[: taken.parts]) if taken.parts else taken.body
    if packed != real(taken, parts):
        real.differs()
    return packed


MUTANTS += (
    Mutant(
        number="38",
        name="part of another reign believed",
        broken="Parts are looked for by their offset, and their checksum is not compared.",
        source="C8",
        profiles=("controllers", "store-trouble"),
        swaps=(
            Swap(StoredValues, "parts", _of_any_reign, pure=False),
            Swap(LogValue, "packed", _unchecked, pure=False),
        ),
    ),
)


# 43a, 43b: a block of producer ids is given a second time.


@mutant(
    producer_ids,
    "_reserve",
    "tr36_producer_ids_of_a_store_that_forgot",
    tests="tests/core/test_producers.py",
    profiles="swarm",
    pure=False,
)
def _not_reserved(real: Real, draft: Draft) -> int:
    """43a: producer-id block given again (C33, C65; TR36).

    The next block begins where the last one began.
    """
    real.differs()
    return draft.header.next_producer_id


@mutant(
    ControllerCore,
    "_start",
    "tr36_producer_ids_of_a_store_that_forgot",
    tests="tests/core/test_producers.py",
    profiles="rollback",
    pure=False,
)
def _going_on(real: Real, self: ControllerCore, event: ControllerStarted) -> Any:
    """43b: no producer ids skipped by a reign (C33; TR36).

    A reign on a store that forgot its end gives the blocks that the forgotten transactions gave.
    """
    if self._state is not None:
        real.differs()
        header = self._state.header
        stay = header.next_producer_id - PRODUCER_IDS_SKIPPED
        self._state = replace(self._state, header=replace(header, next_producer_id=stay))
    return real(self, event)


@mutant(
    recovery,
    "_agreed",
    tests="tests/core/test_branches.py::test_an_isr_that_branches_disagree_upon_is_what_they_share",
    profiles="rollback",
)
def _either(real: Real, highest: PartitionImage, latest: Sequence[PartitionImage]) -> PartitionImage:
    """45: recovery takes the union of ISRs (C38).

    A member of the ISR of one branch may be elected, and lacks what the other branch committed.
    """
    isr = in_assignment_order(highest, {member for each in latest for member in each.isr})
    return replace(highest, leader=None, isr=isr, elr=(), unproven=isr)
