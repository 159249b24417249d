"""Which mutants there are, in the order of their numbers."""

from __future__ import annotations

from mutants import (
    m13_diverging_fetch_counted,
    m14_ack_on_append,
    m15_phantom_epoch,
    m17_recovered_tail,
    m18_late_fetch_answers,
    m20_metadata_for_the_dead,
    m21_copies_of_proposals,
    m23_no_elr,
    m24_min_isr_lowered,
    m25_duplicate_answered,
    m26_same_epoch_after_restart,
    m101_unproven_is_elected,
    m102_compared_as_in_raft,
    m103_one_report_too_few,
    m106_older_copy_unnoticed,
    m112_forgets_who_is_unproven,
    m120_deletes_above_the_hw,
    m121_proposal_of_an_old_epoch,
    m122_woken_consumer,
    r01_truncate_to_hw,
    r02_kip_101_lookup,
    r03_majority,
    r04_below_min_isr,
    r05_election_without_epoch,
    r06_new_leader_knows_hw,
    r07_isr_grows_too_early,
    r08_stale_alter_partition,
    r09_pending_isr,
    r10_node_epoch,
    r11_fetch_fence,
    r12_ack_before_fsync,
)
from mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    *r01_truncate_to_hw.MUTANTS,
    *r02_kip_101_lookup.MUTANTS,
    *r03_majority.MUTANTS,
    *r04_below_min_isr.MUTANTS,
    *r05_election_without_epoch.MUTANTS,
    *r06_new_leader_knows_hw.MUTANTS,
    *r07_isr_grows_too_early.MUTANTS,
    *r08_stale_alter_partition.MUTANTS,
    *r09_pending_isr.MUTANTS,
    *r10_node_epoch.MUTANTS,
    *r11_fetch_fence.MUTANTS,
    *r12_ack_before_fsync.MUTANTS,
    *m13_diverging_fetch_counted.MUTANTS,
    *m14_ack_on_append.MUTANTS,
    *m15_phantom_epoch.MUTANTS,
    *m17_recovered_tail.MUTANTS,
    *m18_late_fetch_answers.MUTANTS,
    *m20_metadata_for_the_dead.MUTANTS,
    *m21_copies_of_proposals.MUTANTS,
    *m23_no_elr.MUTANTS,
    *m24_min_isr_lowered.MUTANTS,
    *m25_duplicate_answered.MUTANTS,
    *m26_same_epoch_after_restart.MUTANTS,
    *m101_unproven_is_elected.MUTANTS,
    *m102_compared_as_in_raft.MUTANTS,
    *m103_one_report_too_few.MUTANTS,
    *m106_older_copy_unnoticed.MUTANTS,
    *m112_forgets_who_is_unproven.MUTANTS,
    *m120_deletes_above_the_hw.MUTANTS,
    *m121_proposal_of_an_old_epoch.MUTANTS,
    *m122_woken_consumer.MUTANTS,
)
"""``R1`` to ``R12``, then 13 to 26, from 101 on those of elections by reports, from 120 on those that others invented.

The pairs that prove a mask stand with the mutant that is masked."""

REQUIRED = tuple(f"R{number}" for number in range(1, 13))
