"""What a consumer of a group holds for worked on, without a cluster."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from strandline.client import OffsetAndMetadata
from strandline.client.background import Background
from strandline.client.consume.cursor import Cursor
from strandline.client.groups.group_commits import GroupCommits
from strandline.core.types import Offset, TopicPartition


async def test_what_the_user_commits_counts_as_worked_on_at_once() -> None:
    """While the coordinator is asked already: a step meanwhile, or the end of reading, must not fall behind it."""
    cursor = Cursor("t", TopicPartition("id", 0))
    cursor.position = Offset(5)
    is_sent, may_answer = asyncio.Event(), asyncio.Event()

    async def commit(*_: Any, **__: Any) -> dict[Any, Any]:
        is_sent.set()
        await may_answer.wait()
        return {}

    offsets: Any = SimpleNamespace(group_id="g", member=lambda: None, commit=commit)
    fetching: Any = SimpleNamespace(cursors={cursor.tp: cursor})
    background = Background()
    commits = GroupCommits(offsets, fetching, background, timeout_ms=5_000)
    commits.gave(cursor, Offset(0))
    before = commits.worked_on()
    committing = asyncio.create_task(commits.commit({cursor.name: OffsetAndMetadata(Offset(5))}))
    await asyncio.wait_for(is_sent.wait(), 10)
    meanwhile = commits.worked_on()
    may_answer.set()
    await committing
    await background.close()

    assert before == {}
    assert meanwhile == {cursor.name: OffsetAndMetadata(Offset(5))}
