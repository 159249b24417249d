"""When a migration gives the source up, between places that keep a state in memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Self

import pytest

from strandline.controller.tools.migrate import migrate
from strandline.metadata.store import Mark, Marked, StoreDamaged, StoreMarked


def _state(*topics: str, reigns: tuple[str, ...] = ("r", "s"), cluster: str = "c", offset: int = 9) -> Any:
    return SimpleNamespace(
        topics=dict.fromkeys(topics, "topic"),
        reigns=dict.fromkeys(reigns, "reign"),
        header=SimpleNamespace(cluster_id=cluster, metadata_offset=offset),
    )


class Kept:
    """A place that reads back what it is made to."""

    def __init__(self, name: str, state: Any = None, *, reads: Any = None) -> None:
        self.name = name
        self.mark: Mark | None = None
        self.state = state
        self._reads = reads

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    async def read(self) -> Any:
        return self.state

    async def set_mark(self, mark: Mark | None) -> None:
        self.mark = mark

    async def write(self, state: Any) -> None:
        self.state = state if self._reads is None else self._reads


@pytest.mark.parametrize(
    "read",
    [_state("a"), _state("b", "a"), _state("a", "b", reigns=("s", "r"))],
    ids=["a topic is missing", "topics in another order", "reigns in another order"],
)
async def test_a_target_that_reads_back_something_else_does_not_become_the_store(read: Any) -> None:
    """The source stays the one that serves, and the target keeps the mark of a store that is half migrated."""
    source, target = Kept("here", _state("a", "b")), Kept("there", reads=read)
    with pytest.raises(StoreDamaged, match="here is still the store"):
        await migrate(source, target)

    assert source.mark is None
    assert target.mark is not None and target.mark.marked is Marked.PENDING


async def test_the_source_is_left_for_the_target_that_has_everything() -> None:
    """What was read back is equal, so the source says where it went and the target serves."""
    source, target = Kept("here", _state("a", "b")), Kept("there")
    await migrate(source, target)

    assert source.mark is not None and (source.mark.marked, source.mark.elsewhere) == (Marked.MOVED, "there")
    assert target.mark is None
    assert target.state == source.state


@pytest.mark.parametrize(
    ("elsewhere", "found"),
    [("there", _state("a", cluster="d")), ("there", _state("a", offset=8)), ("there", None), ("past", _state("a"))],
    ids=["of another cluster", "older than the source", "empty", "moved to another place"],
)
async def test_a_source_that_moved_is_done_only_where_the_target_has_it_all(elsewhere: str, found: Any) -> None:
    """A migration that is repeated stops at a source that is marked as moved, unless this target has all of it."""
    source, target = Kept("here", _state("a")), Kept("there", found)
    source.mark = Mark(Marked.MOVED, "m", elsewhere)
    with pytest.raises(StoreMarked):
        await migrate(source, target)

    assert target.state is found


async def test_a_migration_that_is_repeated_at_its_end_changes_nothing() -> None:
    """The target has served since, and is ahead of the source."""
    ahead = _state("a", "b", offset=10)
    source, target = Kept("here", _state("a")), Kept("there", ahead)
    source.mark = Mark(Marked.MOVED, "m", "there")
    await migrate(source, target)

    assert target.state is ahead
