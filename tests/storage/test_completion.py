"""The checkpoint files are written in a thread while their logs may be deleted, set aside and made again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from strandline.core.types import EpochEntry, LeaderEpoch, Offset
from strandline.storage import completion
from strandline.storage.checkpoint_files import EPOCHS_NAME, write_topic_id
from strandline.storage.completion import Completion, LogFiles
from strandline.storage.disk import StorageFailed

NAME = ("t", 0)
FILES = LogFiles(topic_id="old", epochs=(EpochEntry(LeaderEpoch(3), Offset(0)),))


def one_log(data: Path) -> Completion:
    """A round that writes both files of t-0."""
    return Completion(data, 1, {}, None, {NAME: FILES})


@pytest.mark.parametrize("when", ["before", "written"])
def test_a_log_that_is_replaced_meanwhile_keeps_its_own_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """The folder is renamed and another log takes its name: nothing of the old one is written into it."""
    (tmp_path / "t-0").mkdir()
    round_of_one = one_log(tmp_path)

    def replaced() -> None:
        if not (tmp_path / "old").exists():
            round_of_one.leave_out(NAME)
            (tmp_path / "t-0").rename(tmp_path / "old")
            (tmp_path / "t-0").mkdir()
            write_topic_id(tmp_path / "t-0", "new", durable=False)

    real = completion.write_file

    def write(*given: Any, **named: Any) -> None:
        real(*given, **named)
        replaced()

    monkeypatch.setattr(completion, "write_file", write)
    if when == "before":
        replaced()
    round_of_one.write(durable=True)

    assert "new" in (tmp_path / "t-0" / "partition.metadata").read_text()
    assert [path.name for path in (tmp_path / "t-0").iterdir()] == ["partition.metadata"]


def test_a_log_that_is_gone_is_no_failure_and_one_that_cannot_be_written_is(tmp_path: Path) -> None:
    """A missing folder is a deleted log; a file that cannot be written is a failing disk."""
    one_log(tmp_path).write(durable=True)
    (tmp_path / "t-0" / f"{EPOCHS_NAME}.completing.tmp").mkdir(parents=True)

    with pytest.raises(StorageFailed):
        one_log(tmp_path).write(durable=True)


def test_a_failure_in_the_thread_is_kept_for_the_loop(tmp_path: Path) -> None:
    """The next save raises it, and the process ends."""
    (tmp_path / "t-0" / f"{EPOCHS_NAME}.completing.tmp").mkdir(parents=True)
    failing = one_log(tmp_path)
    failing.start()
    failing.stop()

    assert failing.is_over
    assert isinstance(failing.error, StorageFailed)
    assert not failing.is_complete
