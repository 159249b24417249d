"""A crash at any byte of the journal and between any two writes: what was settled is found again, and nothing else.

Invariants: the state that is read is the one behind some settled step, never older than the last durable one; what was
cut or deleted never comes back.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from log_builder import append

from strandline.core.types import EpochEntry, LeaderEpoch, NodeId, Offset
from strandline.storage import checkpoint_files, completion
from strandline.storage.checkpoints import Checkpoints
from strandline.storage.completion import Completion
from strandline.storage.directory import DataDirectory
from strandline.storage.journal import HEAD_BYTES, JOURNAL_NAMES

NAMES = [("t", 0), ("t", 1), ("u", 0)]
LIMIT_BYTES = 700
State = dict[str, Any]


def state_of(checkpoints: Checkpoints) -> State:
    state: State = {kind.name: dict(found.offsets) for kind, found in checkpoints.by_kind.items()}
    state |= {f"epochs {topic}-{at}": checkpoints.epochs_of((topic, at)) for topic, at in NAMES}
    return state | {"metadata": checkpoints.metadata()}


def folder_of(data: Path, name: tuple[str, int]) -> Path:
    return data / f"{name[0]}-{name[1]}"


CHANGES = st.one_of(
    st.tuples(st.just("hw"), st.sampled_from(NAMES), st.integers(0, 99)),
    st.tuples(st.just("point"), st.sampled_from(NAMES), st.integers(0, 99)),
    st.tuples(st.just("start"), st.sampled_from(NAMES), st.integers(0, 99)),
    st.tuples(st.just("reconciled"), st.sampled_from(NAMES), st.integers(0, 99)),
    st.tuples(st.just("epochs"), st.sampled_from(NAMES), st.integers(0, 4)),
    st.tuples(st.just("lower"), st.sampled_from(NAMES), st.integers(0, 99)),
    st.tuples(st.just("remake"), st.sampled_from(NAMES), st.integers(0, 99)),
    st.tuples(st.just("metadata"), st.just(NAMES[0]), st.integers(0, 30)),
)
STEPS = st.lists(st.lists(CHANGES, min_size=1, max_size=3), min_size=3, max_size=10)


def apply(checkpoints: Checkpoints, change: tuple[str, tuple[str, int], int]) -> None:
    what, name, number = change
    kinds = {
        "hw": checkpoints.high_watermarks,
        "point": checkpoints.recovery_points,
        "start": checkpoints.log_starts,
        "reconciled": checkpoints.reconciled_epochs,
    }
    if what in kinds:
        kinds[what].put(name, Offset(number))
        checkpoints.save(kinds[what])
    elif what == "epochs":
        checkpoints.save_epochs(name, [EpochEntry(LeaderEpoch(at), Offset(2 * at)) for at in range(number)])
    elif what == "lower":
        checkpoints.lower(name, Offset(number))
    elif what == "metadata":
        checkpoints.save_metadata(b"m" * number)
    else:
        checkpoints.forget(name, deleted=True)
        checkpoints.settle()
        shutil.rmtree(folder_of(checkpoints.directory, name))
        folder_of(checkpoints.directory, name).mkdir()
        checkpoints.made(name, f"id{number}")


def at_once(after_each_file: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the checkpoint files be written within the step that begins it, with a look after each file."""

    def start(self: Completion) -> None:
        self.write(durable=True)

    def looked_at(write: Callable[..., None]) -> Callable[..., None]:
        def written(*given: Any, **named: Any) -> None:
            write(*given, **named)
            after_each_file()

        return written

    monkeypatch.setattr(Completion, "start", start)
    monkeypatch.setattr(Completion, "is_over", property(lambda self: True))
    for module, names in (
        (completion, ("rename_file", "replace_file", "write_file")),
        (checkpoint_files, ("replace_file",)),
    ):
        for name in names:
            monkeypatch.setattr(module, name, looked_at(getattr(module, name)))


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=settings.default.max_examples // 5,
)
@given(steps=STEPS)
def test_every_prefix_of_writes_gives_the_state_of_a_settled_step(tmp_path_factory, monkeypatch, steps) -> None:
    """Cut at every byte of every frame, and looked at after every file that is written behind the journal."""
    data = tmp_path_factory.mktemp("data")
    for name in NAMES:
        folder_of(data, name).mkdir()
    checkpoints = Checkpoints.load(data, limit_bytes=LIMIT_BYTES)
    looks: list[State] = []
    with monkeypatch.context() as patch:
        at_once(lambda: looks.append(state_of(Checkpoints.load(data))), patch)
        for step in steps:
            for change in step:
                apply(checkpoints, change)
            before = state_of(Checkpoints.load(data))
            expected = state_of(checkpoints)
            looks.clear()
            frame = checkpoints.journal.sequence
            checkpoints.settle()
            # While the files were written, and behind it.
            assert all(look == expected for look in (*looks, state_of(Checkpoints.load(data))))
            if checkpoints.journal.sequence > frame:
                check_every_cut(data, before, expected)
    checkpoints.close()


def check_every_cut(data: Path, before: State, after: State) -> None:
    """The last frame at each of its lengths: it counts as a whole or not at all, and no cut is a fault."""
    journal = Checkpoints.load(data).journal
    path = data / JOURNAL_NAMES[journal._active]
    content = path.read_bytes()
    last = journal.found.files[journal._active].frames[-1]
    for size in range(last.end - HEAD_BYTES - last.head.size_bytes, len(content) + 1):
        path.write_bytes(content[:size])
        found = Checkpoints.load(data)

        assert found.fault is None
        assert state_of(found) == (after if size == len(content) else before)


@pytest.mark.parametrize("rounds", [0, 2])
def test_the_files_alone_never_go_back_behind_the_journal(tmp_path, monkeypatch, rounds) -> None:
    """A lowered HW, a deleted log and a log that was set aside stay so when files and frames are read again."""
    at_once(lambda: None, monkeypatch)
    for name in NAMES:
        folder_of(tmp_path, name).mkdir()
    checkpoints = Checkpoints.load(tmp_path, limit_bytes=300)
    for name in NAMES:
        checkpoints.made(name, "T")
        checkpoints.high_watermarks.put(name, Offset(90))
        checkpoints.recovery_points.put(name, Offset(90))
    checkpoints.save(checkpoints.high_watermarks, checkpoints.recovery_points)
    checkpoints.settle()
    for _ in range(rounds):
        # Until the frames above are in the files, and their frames are gone.
        checkpoints.save_metadata(b"m" * 400)
        checkpoints.settle()
        checkpoints.save_metadata(b"m" * 400)
        checkpoints.settle()
    checkpoints.lower(NAMES[0], Offset(7))
    checkpoints.forget(NAMES[1], deleted=True)
    checkpoints.forget(NAMES[2])
    checkpoints.settle()
    checkpoints.close()
    again = Checkpoints.load(tmp_path)

    assert again.high_watermarks.offsets == again.recovery_points.offsets == {NAMES[0]: 7}
    assert again.forgotten == {NAMES[1]: "T"}


LIFE = st.lists(
    st.tuples(
        st.sampled_from(["append", "commit", "save", "truncate", "delete", "aside", "epochs", "start", "settle"]),
        st.integers(0, 1),
        st.integers(0, 12),
    ),
    min_size=5,
    max_size=25,
)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=settings.default.max_examples // 4,
)
@given(steps=LIFE)
def test_a_loss_of_power_brings_nothing_back(power, monkeypatch, tmp_path_factory, steps) -> None:
    """Only what was synced survives: no record that was durable is missed, and no log that was deleted is found."""
    root = tmp_path_factory.mktemp("data")
    data = root / "node"
    with monkeypatch.context() as patch:
        at_once(lambda: None, patch)
        directory = DataDirectory.open(data, node_id=NodeId(1), cluster_id="c", journal_bytes=600)
        directory.clear_unclean()
        ids = {0: 0, 1: 0}
        logs = {at: directory.open_log("t", at, "0").log for at in ids}
        durable = dict.fromkeys(ids, 0)
        directory.settle()
        for epoch, (what, at, number) in enumerate(steps):
            log = logs[at]
            if what == "append":
                append(log, *[b"%d/%d" % (log.leo, epoch)] * 2, epoch=epoch)
            elif what == "commit":
                log.issue_flush().sync()
                durable[at] = log.leo
                log.note_durable(log.leo)
            elif what == "save":
                directory.checkpoints.high_watermarks.put(log.name, Offset(durable[at]))
                directory.save_checkpoints()
            elif what == "truncate" and number < log.leo:
                durable[at] = min(durable[at], log.truncate_to(Offset(number)))
            elif what == "epochs":
                log.save_epochs([EpochEntry(LeaderEpoch(number), Offset(log.log_start_offset))])
            elif what == "start" and number <= durable[at]:
                log.advance_log_start(Offset(number))
            elif what in ("delete", "aside"):
                ids[at] += 1
                if what == "delete":
                    directory.delete_log(log)
                else:
                    log.close(clean=False)
                logs[at] = directory.open_log("t", at, str(ids[at])).log
                durable[at] = 0
                directory.settle()
            if what != "epochs":
                directory.settle()
            power.restore(data, root / "after")
            check_survivor(root / "after", ids, durable)
            shutil.rmtree(root / "after")
        for log in logs.values():
            log.close(clean=False)
        directory.close(clean=False)
    power.forget()


def check_survivor(data: Path, ids: dict[int, int], durable: dict[int, int]) -> None:
    directory = DataDirectory.open(data, node_id=NodeId(1), cluster_id="c")

    assert not directory.is_unclean
    for at, number in ids.items():
        opened = directory.open_log("t", at, str(number))
        assert opened.set_aside is None
        assert opened.log.leo >= durable[at]
        assert not opened.recovery.lost_durable_records
        opened.log.close(clean=False)
    directory.close(clean=False)
