"""Which effects of a step are saved first, so that all saves of many partitions become durable at once."""

from __future__ import annotations

from cluster_of_cores import Cluster
from core_builders import TP, TP1, partition_image

from strandline.core.log.effects import (
    AdvanceLogStart,
    AnswerProduce,
    Append,
    Effect,
    RestartLog,
    SaveEpochs,
    SaveHighWatermarks,
    SaveMetadata,
    SaveReconciledEpochs,
    SendForget,
)
from strandline.core.log.saving_order import saves_first
from strandline.core.types import Offset

SAVES = (SaveEpochs, SaveHighWatermarks, SaveMetadata, SaveReconciledEpochs)
EPOCHS, EPOCHS_1 = SaveEpochs(TP, ()), SaveEpochs(TP1, ())
ANSWER: Effect = AnswerProduce(1, ())


def test_saves_go_in_front_of_what_others_see() -> None:
    """The order among the saves, and among the others, stays."""
    hw = SaveHighWatermarks({TP: Offset(3)}, durable=True)

    assert saves_first([ANSWER, EPOCHS, SendForget(2, ()), hw]) == [EPOCHS, hw, ANSWER, SendForget(2, ())]


def test_a_single_save_stays_where_it_is() -> None:
    """It costs one sync in any place."""
    assert saves_first([ANSWER, EPOCHS]) == [ANSWER, EPOCHS]


def test_what_follows_from_a_change_of_its_own_log_stays_behind_it() -> None:
    """The HW of a log that begins again at 9 is above its end until it has."""
    restart, hw = RestartLog(TP, Offset(9)), SaveHighWatermarks({TP: Offset(9)}, durable=True)
    advance = AdvanceLogStart(TP1, Offset(4))

    assert saves_first([ANSWER, restart, EPOCHS, hw, EPOCHS_1]) == [EPOCHS_1, ANSWER, restart, EPOCHS, hw]
    assert saves_first([advance, EPOCHS_1, EPOCHS]) == [EPOCHS, advance, EPOCHS_1]


def test_a_node_that_begins_to_lead_saves_first() -> None:
    """Of one step over two partitions, with requests and reports between them."""
    cluster = Cluster(1, 2)
    cluster.push(1, *(partition_image(tp, leader=2) for tp in (TP, TP1)))
    found = cluster.push(1, *(partition_image(tp, leader=1, epoch=1, version=2) for tp in (TP, TP1)))
    kinds = [type(effect) in SAVES for effect in found]

    saved = [type(effect) for effect in found][: sum(kinds)]
    assert saved == [SaveMetadata, SaveEpochs, SaveEpochs, SaveReconciledEpochs, SaveHighWatermarks]
    assert kinds == sorted(kinds, reverse=True)
    assert not any(isinstance(effect, Append) for effect in found)
