"""What a commit covers (M55), which effects are saved first, and how much a step changes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cluster_of_cores import Cluster
from controller_builders import TOPIC, TOPIC_ID, Controller
from core_builders import TOPIC_ID as TOPIC_ID_OPENING, TP, TP1, metadata, node_epoch, node_image, partition_image
from hypothesis import given, strategies as st

from strandline.core.control import events
from strandline.core.control.draft import Draft
from strandline.core.control.leadership import held_back
from strandline.core.control.messages import CreateTopics, DeleteTopics, NewTopic, ShutdownNode, TopicRef
from strandline.core.control.state import ClusterState, ControllerTimings
from strandline.core.log import effects as want
from strandline.core.log.events import LogOpened, MetadataArrived, Registered
from strandline.core.log.node import NodeCore
from strandline.core.log.replica_log import DurablePoint
from strandline.core.log.saving_order import NodeTimings, saves_first
from strandline.core.messages import PartitionImage
from strandline.core.types import NodeId, Offset, Rules, TopicPartition

TIMINGS = ControllerTimings(partitions_per_step=4, auto_leader_rebalance=False)
"""An election counts as three: a step holds two of them, or one and a partition that only changes its ISR."""


LED_BY_3 = ((1, 2, 3), (3, 1, 2), (2, 3, 1), (3, 2, 1), (3, 1, 2))
"""Assignments of a topic: its partitions 1, 3 and 4 are led by node 3."""


def with_topic(*assignments: tuple[int, ...], timings: ControllerTimings = TIMINGS, **configs: str) -> Controller:
    """Four nodes and a topic of one partition for each assignment."""
    controller = Controller(timings=timings)
    controller.start(1, 2, 3, 4)
    given = tuple((number, tuple(map(NodeId, nodes))) for number, nodes in enumerate(assignments))
    settings = tuple((key.replace("_", "."), value) for key, value in configs.items())
    topic = NewTopic(name=TOPIC, topic_id=TOPIC_ID, assignments=given, configs=settings)
    (created,) = controller.ask(CreateTopics(topics=(topic,))).topics
    assert created.refusal is None
    return controller


def lose(controller: Controller, *nodes: int) -> list[events.ControllerEffect]:
    """The step in which these nodes are found gone."""
    gone = tuple((NodeId(node), controller.epochs[node]) for node in nodes)
    return controller.step(events.ConnectionRefused(controller.now_ms, gone))


def changed(effects: list[events.ControllerEffect]) -> list[int]:
    """The partitions that a step's transaction changes."""
    return [each.tp.partition for e in effects if isinstance(e, events.Commit) for each in e.transaction.partitions]


def following(
    controller: Controller, effects: list[events.ControllerEffect]
) -> Iterator[list[events.ControllerEffect]]:
    """Every step that follows, as long as one is asked for."""
    while events.ContinueStep() in effects:
        effects = controller.step(events.StepContinued(controller.now_ms))
        yield effects


def partitions(state: ClusterState) -> list[PartitionImage]:
    return list(state.partitions())


def test_the_node_is_fenced_with_the_first_part_and_what_it_led_comes_first() -> None:
    """Fencing and two of three elections are one transaction; the third and the other ISRs follow in later ones."""
    controller = with_topic(*LED_BY_3)
    first = lose(controller, 3)
    fenced_at_once = controller.node(3).fenced
    rest = [changed(effects) for effects in following(controller, first)]

    assert fenced_at_once
    assert changed(first) == [1, 3]
    assert rest == [[4, 0], [2]]
    assert [each.leader for each in partitions(controller.core.state)] == [1, 1, 2, 2, 1]
    assert all(NodeId(3) not in each.isr for each in partitions(controller.core.state))


def test_a_step_that_is_not_too_large_is_one() -> None:
    """Two partitions are changed in their own order, and nothing is asked for."""
    effects = lose(with_topic((1, 2, 3), (3, 1, 2)), 3)

    assert changed(effects) == [0, 1]
    assert events.ContinueStep() not in effects


def test_the_next_part_waits_for_what_is_in_front() -> None:
    """Effects that are performed in order make a part durable before the next one is asked for."""
    effects = lose(with_topic(*LED_BY_3), 3)

    assert isinstance(effects[0], events.Commit)
    assert effects[-1] == events.ContinueStep()


def test_a_reign_finishes_what_the_last_one_left_over() -> None:
    """A controller that ends after the first part is followed by one whose first step asks to go on."""
    before = with_topic(*LED_BY_3)
    lose(before, 3)
    after = Controller(state=before.stored, timings=TIMINGS)
    left = [NodeId(3) in each.isr for each in partitions(after.core.state)]
    for _ in following(after, [events.ContinueStep()]):
        pass
    for node in (1, 2):
        after.epochs[node] = before.epochs[node]
        for _ in following(after, [after.heartbeat(node), events.ContinueStep()]):
            pass

    assert left == [True, False, True, False, True]
    assert all(NodeId(3) not in each.isr for each in partitions(after.core.state))
    assert [each.leader for each in partitions(after.core.state)] == [1, 1, 2, 2, 1]


def test_the_tick_continues_what_was_not_continued() -> None:
    """A process that could not decide when it was to continue does so with its next tick."""
    controller = with_topic(*LED_BY_3)
    lose(controller, 3)
    effects = controller.step(events.ControllerTicked(controller.now_ms + 100))

    assert changed(effects) == [4, 0]
    assert events.ContinueStep() in effects


def test_nodes_that_go_one_after_the_other_leave_what_is_left_over_together() -> None:
    """A partition that the first one had not left yet is left by both at once, and both stay eligible (M64)."""
    controller = with_topic(*LED_BY_3, min_insync_replicas="2")
    lose(controller, 3)
    for _ in following(controller, lose(controller, 2)):
        pass
    touched_twice, touched_once = controller.partition(1), controller.partition(2)

    assert (touched_once.leader, touched_once.isr) == (1, (1,))
    assert touched_once.elr == (2, 3)
    assert touched_twice.elr == (2,)


def test_a_node_that_is_back_in_time_keeps_the_places_that_were_left_over() -> None:
    """Its next heartbeat unfences it: it has all that is committed there, and no other leader was elected."""
    controller = with_topic(*LED_BY_3)
    effects = lose(controller, 3)
    before = controller.partition(4)
    controller.heartbeat(3)
    for _ in following(controller, effects):
        pass

    assert controller.partition(4) == before
    assert NodeId(3) in before.isr


def test_a_node_that_stops_is_let_go_when_its_last_place_is_taken() -> None:
    """A controlled shutdown of five partitions takes three steps; only then may the process stop."""
    controller = with_topic(*LED_BY_3)
    answer = controller.ask(ShutdownNode(node_id=NodeId(3)))
    early = controller.heartbeat(3, want_shut_down=True)
    for _ in following(controller, [events.ContinueStep()]):
        pass
    late = controller.heartbeat(3, want_shut_down=True)

    assert [tp.partition for tp in answer.remaining] == [4]
    assert not early.should_shut_down
    assert late.should_shut_down


def test_leaders_for_many_partitions_are_elected_in_parts() -> None:
    """The only replica of five partitions comes back: three steps elect it."""
    controller = with_topic((3,), (3,), (3,), (3,), (3,))
    for _ in following(controller, lose(controller, 3)):
        pass
    controller.register(3)
    controller.report(3, *(controller.log_of(tp=TopicPartition(TOPIC_ID, n)) for n in range(5)))
    controller.heartbeat(3)
    left = [each.leader for each in partitions(controller.core.state)].count(None)
    for _ in following(controller, [events.ContinueStep()]):
        pass

    assert (left, [each.leader for each in partitions(controller.core.state)].count(None)) == (3, 0)


def test_an_unclean_node_loses_all_places_at_once() -> None:
    """A directory that may lack records costs every place in the registration's own transaction (I15)."""
    controller = with_topic(*LED_BY_3)
    controller.register(3, unclean=True)

    assert all(NodeId(3) not in (*each.isr, *each.elr) for each in partitions(controller.core.state))


def test_a_large_topic_is_changed_in_few_parts() -> None:
    """Every change of it is sent whole, so a step changes a quarter of a topic if that is more than the usual bound."""
    controller = with_topic(*([(1, 2, 3)] * 40))
    effects = lose(controller, 3)

    assert [len(changed(effects)), *(len(changed(each)) for each in following(controller, effects))] == [10, 10, 10, 10]


def test_a_deleted_topic_is_left_over_no_more() -> None:
    """What was left over of it is gone, and the next step changes nothing."""
    controller = with_topic(*LED_BY_3)
    lose(controller, 3)
    controller.ask(DeleteTopics(topics=(TopicRef(TOPIC),)))

    assert controller.step(events.StepContinued(controller.now_ms)) == []


def test_a_member_that_is_gone_already_holds_back_no_node() -> None:
    """Where node 3 is left over, nodes 1 and 2, which fell silent together, still wait for each other (M64)."""
    controller = with_topic((3, 1, 4), (3, 1, 4), (1, 2, 3))
    lose(controller, 3)

    assert held_back(controller.draft(), {NodeId(1)}, {NodeId(1), NodeId(2)}) == {NodeId(1)}


def test_a_tick_without_news_looks_at_no_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty times a second: with ten thousand partitions a look at all of them would take a tenth of a processor."""
    controller = with_topic(*LED_BY_3)

    def looked(_self: Draft) -> Iterator[PartitionImage]:
        raise AssertionError("all partitions were looked at")

    monkeypatch.setattr(Draft, "partitions", looked)

    assert controller.step(events.ControllerTicked(controller.now_ms + 1)) == []


# What a commit covers, also when the log was truncated while it ran (M55).


def test_no_commit_without_need() -> None:
    """No commit is issued while everything is durable."""
    assert not DurablePoint(Offset(7)).maybe_issue(Offset(7))


def test_a_cut_between_issue_and_completion_bounds_the_commit() -> None:
    """M55: the lowest truncation since the issue bounds what the commit covers, even after further appends."""
    point = DurablePoint(Offset(0))
    point.maybe_issue(Offset(10))
    point.truncated(Offset(4))
    point.truncated(Offset(7))
    point.complete(Offset(10))

    assert point.point == 4
    assert point.maybe_issue(Offset(9))
    point.complete(Offset(9))
    assert point.point == 9


def test_a_stale_completion_proves_nothing() -> None:
    """A completion that does not name the commit in progress changes nothing."""
    point = DurablePoint(Offset(0))
    point.complete(Offset(8))
    point.maybe_issue(Offset(5))
    point.complete(Offset(8))

    assert point.point == 0
    assert not point.maybe_issue(Offset(9)), "the commit at 5 is still under way"


def test_a_commit_does_not_outlive_its_log() -> None:
    """A commit issued before the log was discarded covers nothing of the new one."""
    point = DurablePoint(Offset(0))
    point.maybe_issue(Offset(50))
    point.restarted(Offset(20))
    point.complete(Offset(50))

    assert point.point == 20


@given(st.lists(st.tuples(st.sampled_from(["append", "cut", "issue", "complete"]), st.integers(0, 6)), max_size=40))
def test_durable_point_agrees_with_a_log_of_marks(steps: list[tuple[str, int]]) -> None:
    """The durable point is the number of leading records that some completed commit really covered."""
    point = DurablePoint(Offset(0))
    # For every record: whether it was durable. And the identities of the records in the running commit.
    log: list[list[bool]] = []
    committing: list[list[bool]] | None = None
    issued = 0
    for verb, number in steps:
        if verb == "append":
            log.extend([False] for _ in range(number))
        elif verb == "cut" and number < len(log):
            del log[number:]
            point.truncated(Offset(number))
        elif verb == "issue" and point.maybe_issue(Offset(len(log))):
            committing, issued = list(log), len(log)
        elif verb == "complete" and committing is not None:
            for mark in committing:
                mark[0] = True
            committing = None
            point.complete(Offset(issued))
        durable = next((i for i, mark in enumerate(log) if not mark[0]), len(log))
        assert point.point == durable


# Which effects of a step are saved first, so that all saves of many partitions become durable at once.


SAVES = (want.SaveEpochs, want.SaveHighWatermarks, want.SaveMetadata, want.SaveReconciledEpochs)
EPOCHS, EPOCHS_1 = want.SaveEpochs(TP, ()), want.SaveEpochs(TP1, ())
ANSWER: want.Effect = want.AnswerProduce(1, ())


def test_saves_go_in_front_of_what_others_see() -> None:
    """The order among the saves, and among the others, stays."""
    hw = want.SaveHighWatermarks({TP: Offset(3)}, durable=True)

    assert saves_first([ANSWER, EPOCHS, want.SendForget(2, ()), hw]) == [EPOCHS, hw, ANSWER, want.SendForget(2, ())]


def test_a_single_save_stays_where_it_is() -> None:
    """A single save costs one sync in any place."""
    assert saves_first([ANSWER, EPOCHS]) == [ANSWER, EPOCHS]


def test_what_follows_from_a_change_of_its_own_log_stays_behind_it() -> None:
    """The HW of a log that begins again at 9 is above its end until it has."""
    restart, hw = want.RestartLog(TP, Offset(9)), want.SaveHighWatermarks({TP: Offset(9)}, durable=True)
    advance = want.AdvanceLogStart(TP1, Offset(4))

    assert saves_first([ANSWER, restart, EPOCHS, hw, EPOCHS_1]) == [EPOCHS_1, ANSWER, restart, EPOCHS, hw]
    assert saves_first([advance, EPOCHS_1, EPOCHS]) == [EPOCHS, advance, EPOCHS_1]


def test_a_node_that_begins_to_lead_saves_first() -> None:
    """The saves of one step over two partitions, with requests and reports between them, come first."""
    cluster = Cluster(1, 2)
    cluster.push(1, *(partition_image(tp, leader=2) for tp in (TP, TP1)))
    found = cluster.push(1, *(partition_image(tp, leader=1, epoch=1, version=2) for tp in (TP, TP1)))
    kinds = [type(effect) in SAVES for effect in found]
    saved = [type(effect) for effect in found][: sum(kinds)]
    assert saved == [
        want.SaveMetadata,
        want.SaveEpochs,
        want.SaveEpochs,
        want.SaveReconciledEpochs,
        want.SaveHighWatermarks,
    ]
    assert kinds == sorted(kinds, reverse=True)
    assert not any(isinstance(effect, want.Append) for effect in found)


# A follower's requests when metadata gives it many logs at once.


PARTITIONS = 50


def test_logs_that_open_together_are_asked_for_together() -> None:
    """Fifty logs opened by one piece of metadata cost one Fetch to their leader, which names all of them."""
    core = NodeCore(node_id=NodeId(2), rules=Rules(), timings=NodeTimings())
    core.step(Registered(0, "cluster-of-cores", node_epoch(2), 1))
    images = [partition_image(TopicPartition(TOPIC_ID_OPENING, index)) for index in range(PARTITIONS)]
    nodes = [node_image(1), node_image(2)]
    asked = core.step(MetadataArrived(0, metadata(node_epoch(2), *images, nodes=nodes)))
    opened = [effect.tp for effect in asked if isinstance(effect, want.OpenLog)]
    answers = [core.step(LogOpened(0, tp, Offset(0), Offset(0), Offset(0))) for tp in opened]
    fetches = [effect for answer in answers for effect in answer if isinstance(effect, want.SendFetch)]
    assert len(opened) == PARTITIONS
    assert [len(fetch.request.partitions) for fetch in fetches] == [PARTITIONS]
