"""Answers of a stream are sent in order, and a full backlog is known before records are read for it."""

from __future__ import annotations

import asyncio

from strandline.runtime.outbox import Outbox


async def test_answers_leave_in_the_order_they_became_ready() -> None:
    """Messages put before and while the writer runs are written in order, and closing ends the writer."""
    outbox: Outbox[int] = Outbox()
    written: list[int] = []

    async def write(message: int) -> None:
        written.append(message)

    outbox.put(1)
    writing = asyncio.create_task(outbox.write_all(write))
    await asyncio.sleep(0)
    outbox.put(2)
    outbox.put(3)
    outbox.close()
    await asyncio.wait_for(writing, 5)

    assert written == [1, 2, 3]


async def test_an_answer_that_is_made_later_keeps_its_place_and_its_room() -> None:
    """It is made when everything put before it is written, and its bytes count until it is written itself."""
    outbox: Outbox[str] = Outbox(max_bytes=100)
    happened: list[str] = []

    async def write(message: str) -> None:
        happened.append(f"{message} written, room {outbox.room_bytes()}")

    async def make() -> str:
        happened.append("made")
        return "later"

    outbox.put("first", 10)
    outbox.put_later(make, 60)
    outbox.put("last")
    outbox.close()
    await outbox.write_all(write)

    assert happened == ["first written, room 30", "made", "later written, room 40", "last written, room 100"]


async def test_room_shrinks_with_the_backlog_and_grows_as_it_is_written() -> None:
    """Bytes count from the put until the write is done."""
    outbox: Outbox[int] = Outbox(max_bytes=100)
    outbox.put(1, 60)
    full = outbox.room_bytes()
    outbox.close()

    async def write(message: int) -> None:
        return

    await outbox.write_all(write)

    assert (full, outbox.room_bytes()) == (40, 100)


async def test_what_is_dropped_gives_its_room_back() -> None:
    """After `clear` the whole room may be read for again."""
    outbox: Outbox[int] = Outbox(max_bytes=100)
    outbox.put(1, 60)
    outbox.clear()

    assert (len(outbox), outbox.room_bytes()) == (0, 100)
