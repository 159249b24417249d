"""The twenty statistics, each in the file of its name; `ALL` has them in their order."""

from __future__ import annotations

from strandline_analytics.stats import (
    s01_hw_lag,
    s02_follower_lag,
    s03_hw_lag_time,
    s04_bytes_above_hw,
    s05_acked_uncommitted,
    s06_potential_cut,
    s07_actual_cut,
    s08_isr_changes,
    s09_removals_by_cause,
    s10_isr_time,
    s11_unavailability,
    s12_rejoin_time,
    s13_detection_delay,
    s14_isr_updates,
    s15_flaps,
    s16_shrink_and_leader,
    s17_incidents,
    s18_stalls,
    s19_failover_time,
    s20_hw_propagation,
)
from strandline_analytics.stats.definition import Statistic

_MODULES = (
    s01_hw_lag,
    s02_follower_lag,
    s03_hw_lag_time,
    s04_bytes_above_hw,
    s05_acked_uncommitted,
    s06_potential_cut,
    s07_actual_cut,
    s08_isr_changes,
    s09_removals_by_cause,
    s10_isr_time,
    s11_unavailability,
    s12_rejoin_time,
    s13_detection_delay,
    s14_isr_updates,
    s15_flaps,
    s16_shrink_and_leader,
    s17_incidents,
    s18_stalls,
    s19_failover_time,
    s20_hw_propagation,
)
ALL: dict[str, Statistic] = {module.STATISTIC.id: module.STATISTIC for module in _MODULES}
"""Every statistic by its id, ``s01`` to ``s20``."""
