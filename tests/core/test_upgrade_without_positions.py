"""A cluster of the first release is taken over: a store without reigns, and nodes that name no position (C126)."""

from __future__ import annotations

from dataclasses import replace

from controller_builders import Controller

from strandline.core.messages import HeartbeatAnswer


def _of_the_first_release() -> Controller:
    """A reign of this release on a store that names no reign, with three nodes and one partition on all of them."""
    before = Controller()
    before.start(1, 2, 3)
    before.create(1, 2, 3)
    assert before.stored is not None
    after = Controller(state=replace(before.stored, reigns={}), timings=before.timings, now_ms=before.now_ms)
    after.epochs = dict(before.epochs)
    return after


def test_a_node_that_names_no_position_is_served() -> None:
    """Absent is not checked: nobody is refused, and the reign goes on."""
    after = _of_the_first_release()

    answers = [after.heartbeat(node_id) for node_id in (1, 2, 3)]

    assert all(isinstance(answer, HeartbeatAnswer) and answer.refusal is None for answer in answers)
    assert after.core.serves


def test_the_first_reign_on_an_old_store_waits_one_session_at_most() -> None:
    """An election waits for a live replica that has not spoken, and no longer than that replica's session."""
    after = _of_the_first_release()
    after.heartbeat(3)
    after.fence(1)

    after.pass_ms(after.timings.session_timeout_ms - 1_000, 3)
    before = after.partition().leader
    after.pass_ms(2_000, 3)

    assert (before, after.partition().leader) == (None, 3)


def test_the_store_names_reigns_from_then_on() -> None:
    """What this reign decides has a position that a later one knows."""
    after = _of_the_first_release()
    after.heartbeat(2)
    after.heartbeat(3)
    after.fence(1)

    assert after.stored is not None
    (reign,) = after.stored.reigns.values()
    assert reign.first_offset <= after.stored.header.metadata_offset
