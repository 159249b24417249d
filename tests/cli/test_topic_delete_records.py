"""`topic delete-records`: its confirmation before it deletes, and its result."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from typer.testing import CliRunner

from strandline.cli import connect
from strandline.cli.app import app
from strandline.cli.ask import topic_change
from strandline.cli.ask.topic_change import deleted_row
from strandline.client import EARLIEST, LATEST, DeletedRecords, ErrorCode, Refusal
from strandline.client.offsets import FoundOffset
from strandline.core.types import LeaderEpoch, Offset

AT = ["--bootstrap", "127.0.0.1:1"]
ARGUMENTS = ["topic", "delete-records", "tides", "-p", "0", "--before", "4", *AT]
LATE = DeletedRecords(0, Offset(0), Refusal(ErrorCode.REQUEST_TIMED_OUT, "not yet; ask again"))


@pytest.fixture
def deleted(monkeypatch: pytest.MonkeyPatch) -> list[dict[int, int]]:
    """A cluster whose partition 0 holds offsets 1 to 9; returns the deletions requested from it."""
    asked: list[dict[int, int]] = []

    class MemoryAdmin:
        async def list_offsets(self, name: str, indexes: Any, *, timestamp_ms: int) -> dict[int, Any]:
            offset = {EARLIEST: 1, LATEST: 10}[timestamp_ms]
            return {index: FoundOffset(Offset(offset), None, LeaderEpoch(1)) for index in indexes}

        async def delete_records(self, name: str, before: dict[int, int]) -> dict[int, DeletedRecords]:
            asked.append(before)
            return {index: DeletedRecords(index, Offset(offset), None) for index, offset in before.items()}

    @asynccontextmanager
    async def opened(bootstrap: str) -> AsyncIterator[MemoryAdmin]:
        yield MemoryAdmin()

    monkeypatch.setattr(connect, "open_admin", opened)
    return asked


@pytest.mark.parametrize("answer", ["n\n", ""])
def test_nothing_is_deleted_without_a_yes(deleted: list[dict[int, int]], answer: str) -> None:
    """A no, and no answer at all, show what would be deleted, end with code 1 and delete nothing."""
    ran = CliRunner().invoke(app, ARGUMENTS, input=answer)

    assert ran.exit_code == 1
    assert "partition 0 of tides: 3 records, offsets 1 to 3 (high watermark 10)" in ran.stderr
    assert "nothing was deleted" in ran.stderr
    assert deleted == []


@pytest.mark.parametrize(("more", "answer"), [([], "y\n"), (["--yes"], "")])
def test_a_yes_deletes(deleted: list[dict[int, int]], more: list[str], answer: str) -> None:
    """After a yes, or with --yes, the offset goes to the cluster and the low watermark is shown."""
    ran = CliRunner().invoke(app, [*ARGUMENTS, *more, "-o", "json"], input=answer)

    assert ran.exit_code == 0
    assert '"low_watermark": 4' in ran.stdout
    assert deleted == [{0: 4}]


def test_latest_is_the_high_watermark_that_was_shown(deleted: list[dict[int, int]]) -> None:
    """Records that arrive after the confirmation stay: the number is sent to the cluster, not the word."""
    words = ["topic", "delete-records", "tides", "-p", "0,2", "--before", "latest", "--yes", *AT]
    ran = CliRunner().invoke(app, words)

    assert ran.exit_code == 0
    assert deleted == [{0: 10, 2: 10}]


def test_an_incomplete_deletion_ends_with_code_1(
    deleted: list[dict[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition that not every replica followed in is shown with its error."""

    async def late(*given: Any) -> list[DeletedRecords]:
        return [LATE]

    monkeypatch.setattr(topic_change, "_delete", late)
    ran = CliRunner().invoke(app, [*ARGUMENTS, "--yes", "-o", "json"])

    assert ran.exit_code == 1
    assert "REQUEST_TIMED_OUT: not yet; ask again" in ran.stdout


@pytest.mark.parametrize("before", ["-1", "x", "1.5", "earliest"])
def test_a_wrong_offset_is_refused_before_anybody_is_asked(deleted: list[dict[int, int]], before: str) -> None:
    """--before takes a whole number from 0 on, or latest; the message says so."""
    ran = CliRunner().invoke(app, ["topic", "delete-records", "tides", "-p", "0", f"--before={before}", "--yes", *AT])

    assert ran.exit_code == 2
    assert "whole number from 0 on" in ran.stderr.replace("\n", " ").replace("│", "").replace("  ", " ")
    assert deleted == []


def test_a_row_says_whether_it_is_done() -> None:
    """The outcome in a row is a word, or the complete error."""
    assert deleted_row("tides", DeletedRecords(1, Offset(4), None))["outcome"] == "deleted"
    assert deleted_row("tides", LATE) == {
        "topic": "tides",
        "partition": 0,
        "low_watermark": 0,
        "deleted": False,
        "outcome": "REQUEST_TIMED_OUT: not yet; ask again",
    }
