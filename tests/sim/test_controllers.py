"""Three controllers on one store: what the simulator reaches, what holds, and which broken rules it catches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from strandline.core.control.controller import ControllerCore
from strandline.core.control.events import ControllerStarted
from strandline.core.control.nodes import Sessions
from strandline.core.reigns.events import AppendRefused, Head, Holder, NoSpace
from strandline.core.reigns.reign import ReignCore
from strandline.metadata.etcd_layout import Keys, LogValue, Range
from strandline_sim.control import stored_values
from strandline_sim.control.store import LeasedStore
from strandline_sim.control.stored_values import KEYS, StoredValues
from strandline_sim.runs.profiles import PROFILES
from strandline_sim.runs.run import run_seed
from strandline_sim.runs.shape import draw_shape
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


def test_append_without_the_token_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant 27: I19, a write of a reign that is over."""

    def only_head(key: Holder | None, head: Head | None, token: int, after: int) -> bool:
        return (0 if head is None else head.revision) == after

    monkeypatch.setattr(stored_values, "may_append", only_head)

    assert _broken_within(12) == "I19"


def test_take_over_that_believes_its_watch_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant 30: I22, the reign does not begin at the end of the log."""
    honest = ReignCore._won

    def believing(core: ReignCore, token: int, revision: int) -> None:
        honest(core, token, revision)
        assert core._reign is not None
        core._reign.head, core._reign.is_head_read = core.applied, True

    monkeypatch.setattr(ReignCore, "_won", believing)

    assert _broken_within(12) == "I22"


def test_controller_epoch_that_stays_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant 31: I21, two reigns with one controller epoch."""
    honest = ControllerCore._start

    def staying(core: ControllerCore, event: ControllerStarted) -> Any:
        if core._state is not None:
            header = core._state.header
            core._state = replace(core._state, header=replace(header, controller_epoch=header.controller_epoch - 1))
        return honest(core, event)

    monkeypatch.setattr(ControllerCore, "_start", staying)

    assert _broken_within(12) == "I21"


@pytest.mark.slow
def test_sessions_that_stay_while_unsure_break(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant 48: I24, nodes are fenced for a time in which nobody could hear them (TR30)."""
    monkeypatch.setattr(Sessions, "resume", lambda sessions, now_ms, closed_ms: None)

    assert _broken_within(48, "store-trouble") == "I24"


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


@pytest.mark.slow
def test_a_part_of_another_reign_that_is_believed_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant 38: a copy is made of what an ended reign left, and cannot be read, or is another state (I0, I22)."""

    def of_any_reign(stored: StoredValues, taken: LogValue) -> tuple[bytes, ...]:
        offset = b"/%016x/" % taken.head.offset
        return tuple(each.value for key, each in stored.range(*KEYS.all_parts) if offset in key)

    def unchecked(taken: LogValue, parts: tuple[bytes, ...]) -> bytes:
        return b"".join(parts[: taken.parts]) if taken.parts else taken.body

    monkeypatch.setattr(StoredValues, "parts", of_any_reign)
    monkeypatch.setattr(LogValue, "packed", unchecked)

    assert _broken_within(40) in {"I0", "I22"}


def test_a_snapshot_that_deletes_too_much_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """I22: what was appended while the snapshot was written is gone."""
    honest = Keys.replaced_by_snapshot

    def too_much(keys: Keys, head: Head, tail: int) -> tuple[Range, ...]:
        return (*honest(keys, head, tail), (keys.logs, keys.log(head.offset + 2)))

    monkeypatch.setattr(Keys, "replaced_by_snapshot", too_much)

    assert _broken_within(24) == "I22"
