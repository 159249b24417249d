"""`strandline produce` against a scripted node: what each of its options sends, and when it reads no further."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.client.fake_cluster import TOPIC, FakeCluster, Refuse, fake_cluster
from typer.testing import CliRunner

from strandline.cli.app import app
from strandline.cli.ask import produce as command
from strandline.cli.failures import CommandFailed
from strandline.core.errors import ErrorCode

NO_PRODUCER = -1


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file of two lines."""
    path = tmp_path / "lines"
    path.write_bytes(b"a\nb\n")
    return path


def work_of(monkeypatch: pytest.MonkeyPatch, *words: str) -> Coroutine[Any, Any, None]:
    """What the command would run in an event loop of its own."""
    works: list[Coroutine[Any, Any, None]] = []
    monkeypatch.setattr(command, "perform", works.append)
    result = CliRunner().invoke(app, ["produce", TOPIC, *words])
    assert result.exit_code == 0, result.output
    return works[0]


def acks_sent(cluster: FakeCluster) -> set[int]:
    """Filled with the acks of every request that the first node gets."""
    found: set[int] = set()
    (node, *_), produce = cluster.nodes, cluster.nodes[0]._produce

    def noted(request: Any, action: Any) -> Any:
        found.add(request.acks)
        return produce(request, action)

    node._produce = noted  # type: ignore[method-assign]
    return found


@pytest.mark.parametrize(("acks", "sent", "is_idempotent"), [("0", 0, False), ("1", 1, False), ("all", -1, True)])
async def test_acks_decide_what_is_waited_for_and_whether_retries_write_twice(
    monkeypatch: pytest.MonkeyPatch, source: Path, acks: str, sent: int, is_idempotent: bool
) -> None:
    """The node is asked for these acks, and only acks=all comes with a producer id; every line arrives."""
    async with fake_cluster() as cluster:
        asked = acks_sent(cluster)
        await work_of(monkeypatch, str(source), "-b", cluster.bootstrap, "--acks", acks)

        assert asked == {sent}
        assert {producer != NO_PRODUCER for _, producer, _, _ in cluster.nodes[0].produced} == {is_idempotent}
        assert cluster.log().values() == [b"a", b"b"]


async def test_nothing_is_read_after_a_refusal(monkeypatch: pytest.MonkeyPatch, source: Path) -> None:
    """The line that was taken meanwhile is still sent; the one behind it stays where it is."""
    given, refused, note = [], asyncio.Event(), command.Tally.note

    async def lines(_: int) -> AsyncIterator[bytes]:
        for line in (b"first", b"second", b"third"):
            given.append(line)
            yield line
            await refused.wait()

    def noted(tally: command.Tally, outcome: Any) -> None:
        note(tally, outcome)
        refused.set()

    monkeypatch.setattr(command, "lines_of", lines)
    monkeypatch.setattr(command.Tally, "note", noted)
    async with fake_cluster() as cluster:
        cluster.nodes[0].next_produce.append(Refuse(ErrorCode.MESSAGE_TOO_LARGE))
        with pytest.raises(CommandFailed, match="1 of 2 records refused"):
            await work_of(monkeypatch, str(source), "-b", cluster.bootstrap)

        assert given == [b"first", b"second"]
        assert cluster.log().values() == [b"second"]
