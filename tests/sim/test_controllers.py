"""Controllers on one store: what holds, which broken rules are caught, and what they take from the store (C8, C17,
C40).
"""

from __future__ import annotations

from typing import Any

import pytest

from strandline.core.control.state import ClusterHeader, ClusterState, TopicRecord, Transaction
from strandline.core.reigns.events import AppendRefused, Head, Holder, NoSpace
from strandline.core.reigns.reign import ReignCore
from strandline.metadata.documents import DamagedDocument, pack, state_of, whole
from strandline.metadata.etcd_layout import Keys, Range, batches, snapshot_of
from strandline_sim.control.store import LeasedStore
from strandline_sim.control.stored_values import KEYS, StoreCopy, StoredValues
from strandline_sim.runs.run import run_seed
from strandline_sim.runs.shape import PROFILES, draw_shape
from strandline_sim.scenario.language import FOLDER
from strandline_sim.scenario.run import run_text
from strandline_sim.world.world import World


@pytest.mark.parametrize("seeds", [3, pytest.param(8, marks=pytest.mark.slow)])
@pytest.mark.parametrize("profile", ["controllers", "store-trouble"])
def test_first_seeds_break_nothing(profile: str, seeds: int) -> None:
    """Reigns change in every seed's run of faults, and no invariant breaks."""
    outcomes = [run_seed(seed, profile) for seed in range(seeds)]

    assert [outcome.violation for outcome in outcomes] == [None] * seeds
    assert sum(outcome.counts["reign: catching_up to active"] for outcome in outcomes) > seeds


def test_a_seed_is_one_run() -> None:
    """The same seed with three controllers is the same run."""
    one, other = run_seed(5, "controllers"), run_seed(5, "controllers")

    assert one == other


def test_a_reign_that_ends_with_the_topic_unstored_is_no_end() -> None:
    """In seed 218 the first reign is over before it has stored the topic; the next one is asked for it again."""
    assert run_seed(218, "controllers").violation is None


def test_a_read_may_show_the_successor_before_the_watch() -> None:
    """In seed 64 a standby reads that the key is free, and for whom, before its watch has shown the name (C22)."""
    assert run_seed(64, "controllers").counts["store read: successor named before the watch shows it"] > 0


def test_promises_name_what_is_counted() -> None:
    """Each state but STOPPED, which a sound store never leads to, is promised by the profile of controllers."""
    promised = " ".join(PROFILES["controllers"].promises)

    for state in ("standby", "campaigning", "catching_up", "active", "unsure", "deposed"):
        assert state in promised


def _broken_within(seeds: int, profile: str = "controllers") -> str:
    for seed in range(seeds):
        violation = run_seed(seed, profile).violation
        if violation is not None:
            return violation.name
    return ""


def _store() -> LeasedStore:
    """A store whose key has token 5."""
    store = LeasedStore(World(draw_shape(0, PROFILES["controllers"])), lambda _: None)
    store.key = Holder(5, "c1", "c1-1", 1)
    return store


def test_parts_and_snapshots_are_fenced_by_the_token() -> None:
    """A reign that is over puts no part, names no snapshot and deletes no log (C8)."""
    store, head = _store(), Head("r", 1, "d")
    refused = AppendRefused, 1, store.key, None

    assert store.put_part("c2", 4, "r", 1, 0, b"part") == refused
    assert store.put_snapshot_part(4, 1, 0, b"part") == refused
    assert store.put_snapshot(4, head, b"current") == refused
    assert store.make_room(4) == ()
    assert store.values.range(b"", b"\xff") == ()
    assert store.put_part("c1", 5, "r", 1, 0, b"part") == ()
    assert store.values.get(KEYS.part("r", 1, 0)) == b"part"


def test_a_full_store_takes_no_part() -> None:
    """NOSPACE refuses every put (C16)."""
    store = _store()
    store.is_full = True

    assert store.put_part("c1", 5, "r", 1, 0, b"part") == (NoSpace,)
    assert store.put_snapshot_part(5, 1, 0, b"part") == (NoSpace,)


@pytest.mark.slow
def test_a_kill_between_parts_and_transaction_comes_to_nothing() -> None:
    """The parts stay, the next reign appends beside them, and nothing breaks (C8)."""
    outcomes = [run_seed(seed, "controllers") for seed in range(16)]

    assert [outcome.violation for outcome in outcomes] == [None] * 16
    assert sum(outcome.counts["killed between parts and transaction"] for outcome in outcomes) > 0
    assert sum(outcome.counts["append in parts beside those of an ended reign"] for outcome in outcomes) > 0
    assert sum(outcome.counts["began again from a snapshot"] for outcome in outcomes) > 0


def test_a_snapshot_that_deletes_too_much_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """I22: what was appended while the snapshot was written is gone."""
    honest = Keys.replaced_by_snapshot

    def too_much(keys: Keys, head: Head, tail: int) -> tuple[Range, ...]:
        return (*honest(keys, head, tail), (keys.logs, keys.log(head.offset + 2)))

    monkeypatch.setattr(Keys, "replaced_by_snapshot", too_much)

    assert _broken_within(24) == "I22"


# A store of several controllers is restored from a copy: which process notices, and what breaks where none does (C40).


NAME = "tr18_restored_store_of_several_controllers"


def test_controllers_that_compare_no_revision_serve_what_nodes_know_better(monkeypatch: pytest.MonkeyPatch) -> None:
    """I23 breaks: a reign serves, and does not know what a node was sent."""
    text = (FOLDER / f"{NAME}.scenario").read_text(encoding="utf-8")
    commands = "".join("#\n" if line.startswith("expect-") else f"{line}\n" for line in text.splitlines())
    monkeypatch.setattr(ReignCore, "_shows_less", lambda *_: False)

    assert "!! I23 is broken" in run_text(commands, NAME, compare=False).text()


def test_seeds_in_which_a_store_is_restored_break_nothing() -> None:
    """A process notices each time, an operator recovers, and everything that was acknowledged is there."""
    outcomes = [run_seed(seed, "store-trouble") for seed in range(12)]

    assert [outcome.violation for outcome in outcomes] == [None] * 12
    assert sum(outcome.counts["controller recovered"] for outcome in outcomes) > 2


def test_seeds_of_controllers_that_compare_no_revision_break(monkeypatch: pytest.MonkeyPatch) -> None:
    """I23 breaks within a few seeds: it is looked at, and restores lose what nodes were sent."""
    honest = ReignCore._shows_less

    def unconcerned(core: ReignCore, event: Any, question: Any) -> bool:
        honest(core, event, question)
        return False

    monkeypatch.setattr(ReignCore, "_shows_less", unconcerned)
    found = (run_seed(seed, "store-trouble").violation for seed in range(24))

    assert next((each.name for each in found if each is not None), "") == "I23"


# A controller's copy of the simulated store: what it is made of, and what it does not believe (C8, C17).


REIGN = "1" * 32


def _transaction(offset: int) -> Transaction:
    header = ClusterHeader(cluster_id="c", secret="s", controller_epoch=1, metadata_offset=offset)
    return Transaction(header=header, topics=(TopicRecord(topic_id=f"id-{offset}", name=f"t{offset}"),))


def _stored(count: int, *, part_bytes: int = 1 << 20) -> StoredValues:
    """The values of that many transactions."""
    stored = StoredValues()
    for batch in batches(REIGN, [_transaction(offset + 1) for offset in range(count)], part_bytes=part_bytes):
        for piece in batch.pieces:
            stored.put(KEYS.log(piece.offset), piece.value, piece.offset)
            for number, part in enumerate(piece.parts):
                stored.put(KEYS.part(REIGN, piece.offset, number), part, piece.offset)
    return stored


def _fold(count: int) -> ClusterState:
    """The state after that many transactions."""
    state = state_of(_transaction(1))
    for offset in range(2, count + 1):
        state = state.apply(_transaction(offset))
    return state


def _add_snapshot(stored: StoredValues, offset: int, *, tail: int) -> None:
    current, parts = snapshot_of(Head(REIGN, offset, "d"), pack(whole(_fold(offset))), 50)
    for number, part in enumerate(parts):
        stored.put(KEYS.snapshot_part(offset, number), part, 100)
    stored.put(KEYS.current_snapshot, current, 100)
    stored.delete(KEYS.replaced_by_snapshot(Head(REIGN, offset, "d"), tail))


def test_a_copy_of_a_log_in_parts_is_its_fold() -> None:
    """Parts of 60 bytes are put together again."""
    copy = StoreCopy()

    assert not copy.begin(_stored(4, part_bytes=60))
    assert copy.state == _fold(4)


def test_a_copy_behind_the_log_begins_again_from_the_snapshot() -> None:
    """What lies between is gone; a copy that the log reaches needs no snapshot."""
    lagging, near = StoreCopy(), StoreCopy()
    lagging.begin(_stored(1))
    near.begin(_stored(4))
    stored = _stored(6)
    _add_snapshot(stored, 5, tail=1)

    assert [lagging.begin(stored), near.begin(stored)] == [True, False]
    assert lagging.state == near.state == _fold(6)
    assert stored.get(KEYS.log(3)) is None


def test_a_gap_is_not_read_over() -> None:
    """Without the snapshot that holds them, deleted transactions are damage."""
    stored = _stored(4)
    stored.delete([(KEYS.log(2), KEYS.log(3))])

    with pytest.raises(DamagedDocument, match="gap"):
        StoreCopy().begin(stored)


def test_parts_that_are_not_whole_are_not_believed() -> None:
    """A part is missing, or is another one: nothing is applied."""
    stored = _stored(1, part_bytes=60)
    key, value = stored.range(KEYS.logs, KEYS.parts)[0]
    copy = StoreCopy()
    taken = copy.taken(key, value)
    parts = stored.parts(taken)

    assert not copy.apply(taken, parts[:-1])
    assert not copy.apply(taken, (b"x" * 60, *parts[1:]))
    assert copy.head is None
    assert copy.apply(taken, (*parts, b"of an earlier attempt"))
