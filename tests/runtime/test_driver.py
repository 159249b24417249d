"""The order of work in a process: effects in list order, follow-ups before anything else, the first failure last."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import Mock

import pytest
from scripted_core import ProcessEnded, ScriptedCore, driver_with

from strandline.core.log.effects import AnswerProduce, Flush, Halt, OpenLog, Truncate
from strandline.core.log.events import CallGone, Event, LogOpened, ProduceArrived, StopRequested, Ticked
from strandline.core.types import Acks, Offset, TopicPartition
from strandline.runtime.driver import DriverFailed
from strandline.runtime.exit_codes import ExitCode

TP = TopicPartition("id", 0)


def _opened(tp: TopicPartition) -> LogOpened:
    return LogOpened(1_000, tp, Offset(0), Offset(0), Offset(0))


def test_effects_are_performed_in_list_order_and_their_events_follow_at_once() -> None:
    """Two effects, then the two events they answered with, each with its own effects before the next."""
    other = TopicPartition("id", 1)
    done: list[str] = []
    core = ScriptedCore(
        {Ticked: lambda _: [OpenLog(TP, "t"), OpenLog(other, "t")], LogOpened: lambda event: [Flush(event.tp)]}
    )

    def open_log(effect: OpenLog) -> Event:
        done.append(f"open {effect.tp.partition}")
        return _opened(effect.tp)

    driver = driver_with(core, {OpenLog: open_log, Flush: lambda effect: done.append(f"flush {effect.tp.partition}")})
    driver.step(Ticked(1_000))

    assert done == ["open 0", "open 1", "flush 0", "flush 1"]
    assert core.kinds() == ["Ticked", "LogOpened", "LogOpened"]


def test_a_failed_effect_ends_the_process_before_the_next_one() -> None:
    """A request whose write failed is never answered."""
    done: list[Any] = []
    core = ScriptedCore({Ticked: lambda _: [Truncate(TP, Offset(1), True), AnswerProduce(1, ())]})
    performers = {Truncate: Mock(side_effect=OSError("disk")), AnswerProduce: done.append}
    driver = driver_with(core, performers, fatal={OSError: ExitCode.STORAGE_FAILED})
    with pytest.raises(ProcessEnded) as ended:
        driver.step(Ticked(1_000))

    assert (ended.value.code, ended.value.line) == (ExitCode.STORAGE_FAILED, "disk")
    assert done == []


def test_nothing_is_stepped_after_a_failure() -> None:
    """A driver that failed rejects every further event."""
    core = ScriptedCore({Ticked: lambda _: [Halt("superseded")]})
    driver = driver_with(core, {Halt: Mock(side_effect=AssertionError("broken"))})
    with pytest.raises(ProcessEnded):
        driver.step(Ticked(1_000))

    with pytest.raises(DriverFailed):
        driver.step(StopRequested(1_000))
    assert core.kinds() == ["Ticked"]


def test_a_broken_invariant_has_its_own_exit_code_and_names_its_place() -> None:
    """An AssertionError of the core ends the process and reports where it was raised."""

    def broken(_: Event) -> list[Any]:
        raise AssertionError("hw 5 above leo 4")

    driver = driver_with(ScriptedCore({Ticked: broken}), {})
    with pytest.raises(ProcessEnded) as ended:
        driver.step(Ticked(1_000))

    assert ended.value.code is ExitCode.INVARIANT_BROKEN
    assert "hw 5 above leo 4" in ended.value.line and "test_driver.py:" in ended.value.line


def _produce(now_ms: int, request_id: int) -> ProduceArrived:
    return ProduceArrived(now_ms, request_id, Acks.ALL, 1_000, ())


async def test_an_answer_within_the_step_needs_no_waiting() -> None:
    """A call that the core answers at once is complete when the step returns: it is neither parked nor ever gone."""
    core = ScriptedCore({ProduceArrived: lambda event: [AnswerProduce(event.request_id, ("ok",))]})
    driver = driver_with(core, {})
    driver.attach({AnswerProduce: lambda effect: driver.calls.answer(effect.request_id, effect.results)})

    assert await driver.ask(_produce, tuple) == ("ok",)
    assert len(driver.calls) == 0
    assert core.kinds() == ["ProduceArrived"]


async def test_a_cancelled_caller_is_forgotten_by_the_core() -> None:
    """When a caller hangs up while it is parked, the core gets CallGone with its request id."""
    core = ScriptedCore()
    driver = driver_with(core, {})
    waiting = asyncio.create_task(driver.ask(_produce, tuple))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)

    arrived, gone = core.seen
    assert isinstance(arrived, ProduceArrived) and isinstance(gone, CallGone)
    assert arrived.request_id == gone.request_id
    assert len(driver.calls) == 0


async def test_a_stream_waits_while_the_purgatory_is_full() -> None:
    """`wait_for_room` returns after the step that made room, not before."""
    core = ScriptedCore()
    core.purgatory_full = True
    driver = driver_with(core, {})
    waiting = asyncio.create_task(driver.wait_for_room())
    await asyncio.sleep(0)
    driver.step(Ticked(1_000))
    await asyncio.sleep(0)
    still_full = waiting.done()
    core.purgatory_full = False
    driver.step(Ticked(1_000))
    await asyncio.wait_for(waiting, 1)

    assert not still_full


async def test_ticks_come_until_cancelled() -> None:
    """The ticker steps `Ticked` again and again."""
    enough = asyncio.Event()
    core = ScriptedCore()
    core.script[Ticked] = lambda _: enough.set() or () if len(core.seen) >= 3 else ()
    driver = driver_with(core, {})
    ticking = asyncio.create_task(driver.tick_forever(every_ms=1))
    await asyncio.wait_for(enough.wait(), 5)
    ticking.cancel()
    await asyncio.gather(ticking, return_exceptions=True)

    assert set(core.kinds()) == {"Ticked"}


async def test_no_tick_comes_before_it_is_due() -> None:
    """A core with nothing due is left alone until then; an event brings the next tick at once."""
    resting, ticked = asyncio.Event(), asyncio.Event()
    core = ScriptedCore({Ticked: lambda _: ticked.set() or ()})
    driver = driver_with(core, {})
    ticking = asyncio.create_task(driver.tick_forever(1, lambda: resting.set() or driver.clock() + 60_000))
    await asyncio.wait_for(resting.wait(), 5)
    driver.step(CallGone(1_000, 1))
    await asyncio.wait_for(ticked.wait(), 5)
    ticking.cancel()
    await asyncio.gather(ticking, return_exceptions=True)

    assert core.kinds() == ["CallGone", "Ticked"]
