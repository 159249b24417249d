"""27, 28, 34: a store of several controllers that compares too little before it writes."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap

from strandline.core.reigns.events import Head, Holder
from strandline_sim.control import stored_values

_PROFILES = ("controllers", "store-trouble")


def _only_the_head(real: Real, key: Holder | None, head: Head | None, token: int, after: int) -> bool:
    return (0 if head is None else head.revision) == after


def _that_the_key_exists(real: Real, key: Holder | None, head: Head | None, token: int, after: int) -> bool:
    return key is not None and (0 if head is None else head.revision) == after


def _put_over(real: Real, key: Holder | None, token: int, taker: Holder) -> Holder | None:
    return taker if key is not None and key.token == token else key


MUTANTS = (
    Mutant(
        number="27",
        name="append without the token",
        broken="A batch is written, no matter who holds the election key.",
        source="C7; TR22",
        scenario="tr22_append_of_a_paused_controller",
        profiles=_PROFILES,
        swaps=(Swap(stored_values, "may_append", _only_the_head),),
    ),
    Mutant(
        number="28",
        name="append compares that the key exists",
        broken="A batch is written while anybody holds the election key.",
        source="C7; TR23",
        scenario="tr23_key_of_a_third_controller",
        profiles=_PROFILES,
        swaps=(Swap(stored_values, "may_append", _that_the_key_exists),),
    ),
    Mutant(
        number="34",
        name="key taken by a put over it",
        broken="A controller that takes the election key puts over it, and so keeps its create revision.",
        source="C3; TR24",
        scenario="tr24_key_taken_by_a_put",
        profiles=_PROFILES,
        swaps=(Swap(stored_values, "key_after_taking", _put_over),),
    ),
)
