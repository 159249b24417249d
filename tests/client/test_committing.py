"""One commit at a time, and each in the name of the member epoch in which it was asked for."""

from __future__ import annotations

import asyncio

from tests.client.fake_cluster import until

from strandline.client import OffsetAndMetadata, TopicPartition
from strandline.client.background import Background
from strandline.client.committed_offsets import AsMember
from strandline.client.committing import Commits, Positions
from strandline.client.errors import CommitFailed
from strandline.core.errors import Refusal
from strandline.core.types import Offset

ZERO = TopicPartition("t", 0)


def at(offset: int) -> Positions:
    return {ZERO: OffsetAndMetadata(Offset(offset))}


async def test_commits_of_two_member_epochs_are_not_merged() -> None:
    """What is asked for while a commit is under way goes with the next one, together with what its own epoch has asked
    for and with nothing of another epoch, in the order in which it was asked for."""
    sent: list[tuple[int | None, int]] = []
    heard: list[tuple[int, CommitFailed | None]] = []
    is_answered = asyncio.Event()
    epoch = 1

    async def send(offsets: Positions, member: AsMember | None) -> dict[TopicPartition, Refusal]:
        sent.append((None if member is None else member.member_epoch, offsets[ZERO].offset))
        await is_answered.wait()
        return {}

    def done(offsets: Positions, failed: CommitFailed | None) -> None:
        heard.append((offsets[ZERO].offset, failed))

    background = Background()
    commits = Commits("g", send, background, lambda: AsMember("m", epoch, None))
    commits.add(at(1), done)
    await asyncio.sleep(0)
    commits.add(at(2), done)
    commits.add(at(3), done)
    epoch = 2
    commits.add(at(4), done)
    commits.add(at(5), done)
    epoch = 3
    commits.add(at(6), done)
    is_answered.set()
    await until(lambda: len(heard) == 6)
    await background.close()

    assert sent == [(1, 1), (1, 3), (2, 5), (3, 6)]
    assert heard == [(offset, None) for offset in range(1, 7)]
