"""Quotas of clients: what a rate allows, how they are changed, what a controller refuses (C102 to C104)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from controller_builders import Controller, started
from hypothesis import example, given, strategies as st

from strandline.core.control import events, messages
from strandline.core.control.recovery import GivenNode, recover
from strandline.core.errors import ErrorCode
from strandline.core.permissions import ANONYMOUS, EVERY_CLIENT
from strandline.core.quotas import LONGEST_WAIT_MS, Meters, Quota, QuotaChange, QuotaKey
from strandline.core.types import QUOTAS, NodeId

PRODUCE, CONSUME = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
REQUESTS, MUTATIONS = QuotaKey.REQUEST_RATE, QuotaKey.CONTROLLER_MUTATION_RATE
MB = 1_000_000


def meters(*given_quotas: Quota, burst_ms: int = 10_000, most: int = 100) -> Meters:
    made = Meters(burst_ms, most)
    made.know(tuple(sorted(given_quotas)))
    return made


def test_t62() -> None:
    """At 1 MB/s a steady 2 MB/s in requests of 1 MB is not throttled for 10 s, then for 1,000 ms each; all is served.

    Of the first request beyond the burst half is still there.
    """
    metered, now_ms, served_bytes, shown = meters(Quota("client/x", PRODUCE, MB)), 0, 0, []
    for _ in range(40):
        now_ms += 500
        # What is muted is not read, so its request is served late, and whole.
        now_ms += metered.muted_ms("client/x", (PRODUCE,), now_ms)
        shown.append((now_ms, metered.take("client/x", PRODUCE, MB, now_ms)))
        served_bytes += MB

    assert [wait for at_ms, wait in shown if at_ms < 10_000] == [0] * 19
    assert [wait for at_ms, wait in shown if at_ms >= 10_000] == [500] + [1_000] * 20
    assert served_bytes == 40 * MB


RATES = st.sampled_from([0.5, 3, 7, 1_000, 123_457, MB])
STEPS = st.lists(st.tuples(st.integers(0, 5_000), st.integers(1, 5_000_000)), max_size=60)


@given(RATES, STEPS)
def test_a_client_that_waits_as_long_as_asked_meets_no_mute(rate: float, steps: list[tuple[int, int]]) -> None:
    """Whatever it sends: an obedient client is never muted when it asks again."""
    metered, now_ms = meters(Quota("client/x", PRODUCE, rate)), 0
    for pause_ms, size in steps:
        now_ms += pause_ms
        assert metered.muted_ms("client/x", (PRODUCE, REQUESTS), now_ms) == 0
        now_ms += metered.take("client/x", PRODUCE, size, now_ms)


@given(RATES, STEPS)
@example(MB, [(5_000, 1)] * 4 + [(0, 5 * MB)] * 4)
def test_no_more_is_served_than_rate_and_burst_allow(rate: float, steps: list[tuple[int, int]]) -> None:
    """Over any time, from any request on, the last one aside, which is always served whole; as far as no wait is cut at
    30 s."""
    metered, now_ms, served, least_ahead = meters(Quota("client/x", PRODUCE, rate)), 0, 0, 0.0
    for pause_ms, size in steps:
        now_ms += pause_ms + metered.muted_ms("client/x", (PRODUCE,), now_ms + pause_ms)
        ahead = served - rate * now_ms / 1_000
        least_ahead = min(least_ahead, ahead)
        assert ahead - least_ahead <= rate * 10 + 1
        wait_ms = metered.take("client/x", PRODUCE, size, now_ms)
        assert wait_ms <= LONGEST_WAIT_MS
        served += size
        if wait_ms == LONGEST_WAIT_MS:
            return


def test_a_mute_is_of_what_the_quota_is_about() -> None:
    """A client that produces too much may read; one that asks too often may do neither; a neighbour both."""
    metered = meters(Quota("client/x", PRODUCE, 1), Quota("client/y", REQUESTS, 1), burst_ms=1_000)
    metered.take("client/x", PRODUCE, 3, 0)
    metered.take("client/y", REQUESTS, 3, 0)
    muted = {
        (name, key): metered.muted_ms(f"client/{name}", (REQUESTS, key), 0)
        for name in ("x", "y", "z")
        for key in (PRODUCE, CONSUME)
    }

    assert [muted["x", PRODUCE], muted["x", CONSUME]] == [2_000, 0]
    assert [muted["y", PRODUCE], muted["y", CONSUME]] == [2_000, 2_000]
    assert [muted["z", PRODUCE], muted["z", CONSUME]] == [0, 0]


def test_the_default_is_of_each_client_for_itself_and_of_the_anonymous_together() -> None:
    """A quota of its own takes the default's place, key by key; without TLS there is one principal."""
    metered = meters(Quota(EVERY_CLIENT, PRODUCE, 10), Quota("client/x", PRODUCE, 1_000), burst_ms=1_000)
    took = [metered.take(name, PRODUCE, 20, 0) for name in ("client/x", "client/y", "client/z", ANONYMOUS, ANONYMOUS)]

    assert took == [0, 1_000, 1_000, 1_000, 3_000]
    assert metered.take("client/y", CONSUME, 10**9, 0) == 0


@pytest.mark.parametrize(
    ("after", "muted_ms"),
    [
        ((), 0),
        ((Quota("client/x", PRODUCE, 2.0),), 0),
        ((Quota("client/x", CONSUME, 1.0), Quota("client/x", PRODUCE, 1.0)), 9_000),
    ],
)
def test_a_mute_ends_with_its_quota(after: tuple[Quota, ...], muted_ms: int) -> None:
    """When it is removed or changed; not when another one is."""
    metered = meters(Quota("client/x", PRODUCE, 1.0), burst_ms=1_000)
    metered.take("client/x", PRODUCE, 10, 0)

    assert metered.know(tuple(sorted(after)))
    assert metered.muted_ms("client/x", (PRODUCE,), 0) == muted_ms
    assert not metered.know(tuple(sorted(after)))


def test_what_is_remembered_is_bounded() -> None:
    """A principal that used nothing of late is forgotten first, so one in debt stays in debt."""
    metered = meters(Quota(EVERY_CLIENT, PRODUCE, 100), burst_ms=1_000, most=20)
    debtors = [f"client/debtor{n}" for n in range(3)]
    for name in debtors:
        metered.take(name, PRODUCE, 10_000, 0)
    for n in range(1_000):
        metered.take(f"client/{n}", PRODUCE, 1, n * 1_000)
        for name in debtors:
            metered.take(name, PRODUCE, 1_000, n * 1_000)

    assert len(metered) == 20
    assert all(metered.muted_ms(name, (PRODUCE,), 999_000) == LONGEST_WAIT_MS for name in debtors)


def test_there_is_nothing_to_ask_without_a_quota() -> None:
    """One test tells a busy node that no client has a quota, also after the last one was removed."""
    metered = meters(Quota("client/x", PRODUCE, 1))
    before = metered.quotas
    metered.know(())

    assert (bool(before), bool(metered.quotas)) == (True, False)
    assert metered.take("client/x", PRODUCE, 10**9, 0) == 0


# ---- the controller


def _alter(controller: Controller, *entries: tuple[QuotaChange, ...], **more: Any) -> list[ErrorCode | None]:
    answer = controller.ask(messages.AlterClientQuotas(entries=entries, **more))
    return [None if refusal is None else refusal.code for refusal in answer.refusals]


X = QuotaChange("client/x", PRODUCE, 5.0)


def test_quotas_are_set_listed_and_removed() -> None:
    """Each key of each principal once; a check alone changes nothing; nodes are sent them, and clients are not."""
    controller = started(1, 2, 3)
    checked = _alter(controller, (X,), validate_only=True), controller.core.state.quotas
    _alter(controller, (X, X._replace(key=CONSUME)), (X._replace(principal=EVERY_CLIENT, value=7.0),))
    _alter(
        controller, (X._replace(value=6.0), X._replace(key=CONSUME, value=None), X._replace(key=REQUESTS, value=None))
    )
    listed = controller.ask(messages.DescribeClientQuotas(principals=("client/x",))).quotas
    shown = controller.ask(messages.GetMetadata()).image

    assert checked == ([None], ())
    assert controller.core.state.quotas == (Quota(EVERY_CLIENT, PRODUCE, 7.0), Quota("client/x", PRODUCE, 6.0))
    assert listed == (Quota("client/x", PRODUCE, 6.0),)
    assert controller.core.state.snapshot().quotas == controller.core.state.quotas
    assert shown.quotas is None


@pytest.mark.parametrize(
    "wrong",
    [
        X._replace(principal="x"),
        X._replace(principal="admin/x"),
        X._replace(key="io_rate"),
        X._replace(value=0.0),
        X._replace(value=-1.0),
        X._replace(value=float("nan")),
        X._replace(value=float("inf")),
    ],
)
def test_what_can_be_no_quota_is_refused(wrong: QuotaChange) -> None:
    """With all that its entry says; the neighbours of the entry are done."""
    controller = started(1, 2, 3)

    assert _alter(controller, (X._replace(principal="client/y"), wrong), (X,)) == [ErrorCode.INVALID_REQUEST, None]
    assert controller.core.state.quotas == (Quota("client/x", PRODUCE, 5.0),)


def test_quotas_need_their_feature_level() -> None:
    """Below it they are refused with the nodes that keep it low; while there are some, no older node joins."""
    old = started(1, 2, 3, feature_max=QUOTAS - 1)
    new = started(1, 2, 3)
    _alter(new, (X,))
    late = new.register(9, feature_max=QUOTAS - 1).refusal
    _alter(new, (X._replace(value=None),))

    assert _alter(old, (X,)) == [ErrorCode.UNSUPPORTED_VERSION]
    assert late.code is ErrorCode.UNSUPPORTED_VERSION
    assert new.register(9, feature_max=QUOTAS - 1).refusal is None


def test_a_recovery_keeps_the_quotas_that_a_node_was_sent() -> None:
    """A store that is made from nodes' directories has the newest quotas among them, or an older store's."""
    controller = started(1, 2, 3)
    _alter(controller, (X,))
    image = controller.core.state.snapshot()
    untold = GivenNode(node_id=NodeId(2), directory_id="d", image=replace(image, quotas=None))
    shown = recover([GivenNode(node_id=NodeId(1), directory_id="d", image=image)])

    assert shown.quotas == recover([untold], controller.core.state).quotas == (Quota("client/x", PRODUCE, 5.0),)


def _create(controller: Controller, name: str, partitions: int, principal: str | None = "client/x") -> Any:
    topic_id = f"{name[-1] * 8}-0000-4000-8000-000000000000"
    request = messages.CreateTopics(topics=(messages.NewTopic(name, topic_id, partitions, 1),))
    return _answer(controller, request, principal)


def _answer(controller: Controller, request: Any, principal: str | None) -> Any:
    effects = controller.step(events.RequestArrived(controller.now_ms, 1, request, None, principal))
    return next(each for each in effects if isinstance(each, events.Answer | events.RefuseCall))


def test_beyond_its_rate_a_client_changes_no_topics() -> None:
    """What exceeds the burst is done whole, what comes next not at all, with the time to wait; later it goes on (C104).

    Partitions that are created and that are deleted count; others and administrators are not held up.
    """
    controller = started(1, 2, 3)
    _alter(controller, (QuotaChange("client/x", MUTATIONS, 1.0),))
    _create(controller, "a", 8)
    _answer(controller, messages.DeleteTopics(topics=(messages.TopicRef("a"),)), "client/x")
    refused = _create(controller, "b", 1)
    others = [_create(controller, "c", 1, principal) for principal in ("client/y", None)]
    names = {topic.name for topic in controller.core.state.topics.values()}
    controller.now_ms += 6_000
    later = _create(controller, "b", 1)

    assert (refused.refusal.code, refused.refusal.throttle_time_ms) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, 6_000)
    assert "6 s" in refused.refusal.message
    assert all(isinstance(each, events.Answer) for each in others)
    assert names == {"c"}
    assert isinstance(later, events.Answer)


def test_without_tls_nodes_still_get_their_own_topics() -> None:
    """The default is of all that have no certificate, and among them may be a node that asks for an internal topic."""
    controller = started(1, 2, 3)
    _alter(controller, (QuotaChange(EVERY_CLIENT, MUTATIONS, 0.001),))
    _create(controller, "a", 8, ANONYMOUS)
    mine = _create(controller, "__group_state", 1, ANONYMOUS)
    other = _create(controller, "b", 1, ANONYMOUS)

    assert isinstance(mine, events.Answer)
    assert isinstance(other, events.RefuseCall)
