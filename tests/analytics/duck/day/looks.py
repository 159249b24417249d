"""What leaders and followers recorded: samples of replicas, advances of the HW, followers' own samples of it.

All of it is arithmetic on whole columns. A log grows evenly within a term; the HW follows at a random distance, does
not move where `decisions` says so, and never goes back (running maxima).

Invariant: HW <= LEO of each member of the ISR, at every sample.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from day.decisions import History
from day.shape import HOT, SECOND, Shape

Columns = dict[str, np.ndarray]
_APART = 1 << 40
"""Partitions are distinguished in one sorted number: partition * _APART + time."""
BYTES_PER_RECORD = 100


@dataclass(slots=True)
class Seen:
    """Tables of samples by event type; ``t`` is controller time, ``p`` the partition."""

    tables: dict[str, Columns]
    interval_us: int


def see(shape: Shape, history: History, rows_left: int, rng: np.random.Generator) -> Seen:
    """As many samples as fit into the remaining rows."""
    states, terms = np.array(history.states), np.array(history.terms)
    # For each sample: its replicas, the advance before it, and half of the followers.
    per_look = shape.replication_factor + 0.75 + 0.5 * (shape.replication_factor - 1)
    extra = 2 * len(states)
    looks = max(shape.partitions, int((rows_left - extra * per_look) / per_look))
    hot_looks = int(looks * shape.hot_share)
    interval = max(SECOND, shape.end * shape.partitions // (looks - hot_looks))
    look = _moments(shape, states, history, interval, hot_looks, rng)
    look |= _heights(look, states, terms, history, rng)
    interval_ms = np.full(shape.partitions, interval * 5 // 4 // 1_000)
    if hot_looks:
        interval_ms[HOT] = max(1, shape.end // hot_looks * 5 // 4 // 1_000)
    tables = {
        "REPLICA_SAMPLE": _replicas(shape, look, states, history, interval_ms, rng),
        "HW_ADVANCE": _advances(look, rng),
        "LOCAL_SAMPLE": _locals(shape, look, history, interval_ms, rng),
    }
    return Seen(tables, interval)


def _moments(
    shape: Shape, states: np.ndarray, history: History, interval: int, hot_looks: int, rng: np.random.Generator
) -> Columns:
    """The times of samples: on a grid with jitter, a finer one for a hot partition, and on both sides of each change.

    Only living leaders take samples.
    """
    n = shape.end // interval
    grid = np.arange(n) * interval + rng.integers(0, interval, (shape.partitions, 1))
    grid = (grid + rng.integers(-interval // 8, interval // 8 + 1, grid.shape)).ravel()
    p = np.repeat(np.arange(shape.partitions), n)
    before, after = states[:, 1] - 1_000, states[:, 1] + 130_000
    t = np.concatenate([grid, before, after])
    p = np.concatenate([p, states[:, 0], states[:, 0]])
    if hot_looks:
        step = shape.end // hot_looks
        t = np.concatenate([t, np.arange(hot_looks) * step + rng.integers(0, max(1, step // 4), hot_looks)])
        p = np.concatenate([p, np.full(hot_looks, HOT)])
    keep = (t > 200_000) & (t < shape.end - SECOND)
    t, p = t[keep], p[keep]
    state = np.searchsorted(states[:, 0] * _APART + states[:, 1], p * _APART + t, side="right") - 1
    zombie = np.zeros(len(t), dtype=bool)
    if history.zombies:
        ghosts = [(z[0], z[1], at) for z in history.zombies for at in range(z[2] + SECOND, z[3], 2 * SECOND)]
        ghost = np.array(ghosts).reshape(-1, 3)
        p, state, t = (np.concatenate([a, b]) for a, b in ((p, ghost[:, 0]), (state, ghost[:, 1]), (t, ghost[:, 2])))
        zombie = np.concatenate([zombie, np.ones(len(ghost), dtype=bool)])
    active = np.array(history.terms)[states[state, 2], 4]
    lives = (states[state, 5] == 1) & (t > active)
    order = np.lexsort((t, states[state, 2]))
    order = order[lives[order]]
    return {"p": p[order], "t": t[order], "state": state[order], "zombie": zombie[order]}


def _heights(
    look: Columns, states: np.ndarray, terms: np.ndarray, history: History, rng: np.random.Generator
) -> Columns:
    """LEO and HW of the leader at each sample, and when the record at the HW was appended."""
    t, p, state = look["t"], look["p"], look["state"]
    term = states[state, 2]
    _, _, leader, commit, _, start, floor = terms[term].T
    rate = history.rates[p]
    leo = start + rate * (t - commit) // 1_000_000_000
    held = t
    if history.freezes:
        freezes = np.array(sorted(history.freezes))
        at = np.searchsorted(freezes[:, 0] * _APART + freezes[:, 1], p * _APART + t, side="right") - 1
        inside = (at >= 0) & (freezes[at, 0] == p) & (t < freezes[at, 2]) & ~look["zombie"]
        held = np.where(inside, freezes[at, 1], t)
    behind = (rng.exponential(40_000, len(t)) * (rng.random(len(t)) < 0.7)).astype(np.int64)
    seen = start + rate * np.maximum(0, held - behind - commit) // 1_000_000_000
    hw = np.where(held < commit, floor, np.maximum(floor, seen))
    # Running maxima within each term: terms are numbered upwards, and offsets stay far below 2**40.
    hw = np.maximum.accumulate(hw + term * _APART) - term * _APART
    with np.errstate(divide="ignore", invalid="ignore"):
        since = np.where(rate > 0, commit + -(-(hw - start) * 1_000_000_000 // np.maximum(rate, 1)), t)
    appended = np.where(leo > hw, np.clip(since, 0, t), -1)
    return {"term": term, "leader": leader, "epoch": terms[term, 1], "leo": leo, "hw": hw, "appended": appended,
            "held": held}  # fmt: skip


def _replicas(
    shape: Shape, look: Columns, states: np.ndarray, history: History, interval_ms: np.ndarray, rng: np.random.Generator
) -> Columns:
    """Each sample of each replica."""
    rf, n = shape.replication_factor, len(look["t"])
    slot = np.tile(np.arange(rf), n)
    row = np.repeat(np.arange(n), rf)
    state = look["state"][row]
    replica = history.replicas[look["p"][row], slot]
    member = (states[state, 3] >> slot) & 1 == 1
    down = (states[state, 4] >> slot) & 1 == 1
    own = replica == look["leader"][row]
    leader_leo, hw, t = look["leo"][row], look["hw"][row], look["t"][row]
    leo = hw + ((leader_leo - hw) * rng.random(n * rf)).astype(np.int64)
    frozen = look["held"][row] < t
    leo = np.where(frozen & ((states[state, 7] == slot) | (states[state, 7] < 0)), hw, leo)
    lost = history.rates[look["p"][row]] * (t - states[state, 1]) // 1_000_000_000
    leo = np.where(member, leo, np.maximum(0, hw - lost))
    leo = np.where(own, leader_leo, leo)
    fetched = np.where(member & ~frozen, t - rng.integers(0, 400_000, n * rf), states[state, 1])
    acked_by_leader = look["p"][row] % 5 == 0
    first = np.diff(look["term"], prepend=-1) != 0
    number = np.arange(n) - np.maximum.accumulate(np.where(first, np.arange(n), 0)) + 1
    return {
        "p": look["p"][row], "t": t, "node_id": look["leader"][row], "leader_epoch": look["epoch"][row],
        "partition_epoch": states[state, 6], "sample_id": number[row], "interval_ms": interval_ms[look["p"][row]],
        "replica_id": replica, "leo": leo,
        "durable_leo": np.where(own, np.maximum(hw, leader_leo - (rng.random(n * rf) < 0.05) * 3), leo),
        "leader_leo": leader_leo, "hw": hw, "acked_offset": np.where(acked_by_leader, leader_leo, hw),
        "log_start": np.zeros(n * rf, np.int64), "leo_bytes": leader_leo * BYTES_PER_RECORD,
        "hw_bytes": hw * BYTES_PER_RECORD,
        "hw_next_append_us": np.where(rng.random(n * rf) < 0.02, -1, look["appended"][row]),
        "last_fetch_us": np.where(own, -1, fetched), "last_caught_up_us": np.where(own, -1, fetched - 1_000),
        "in_isr": member, "in_maximal_isr": member,
        "expected_state": np.where(member, 0, np.where(down, 2, 1)),
    }  # fmt: skip


def _advances(look: Columns, rng: np.random.Generator) -> Columns:
    """Between two samples of a term the HW advanced, recorded as one coalesced row."""
    same = (look["term"][1:] == look["term"][:-1]) & (look["hw"][1:] > look["hw"][:-1])
    later = np.flatnonzero(same) + 1
    gap = look["t"][later] - look["t"][later - 1]
    # It moved soon after the sample before, unless it was stalled then: the stall ended shortly before this sample.
    apart = (rng.random(len(later)) * np.minimum(gap, 400_000)).astype(np.int64)
    stood = look["held"][later - 1] < look["t"][later - 1]
    last = np.where(stood, look["t"][later] - apart, look["t"][later - 1] + apart)
    first = np.maximum(look["t"][later - 1], last - rng.integers(0, 100_000, len(later)))
    return {
        "p": look["p"][later], "t": last, "node_id": look["leader"][later], "leader_epoch": look["epoch"][later],
        "old_hw": look["hw"][later - 1], "new_hw": look["hw"][later], "first_us": first, "last_us": last,
        "n_coalesced": rng.integers(1, 10, len(later)),
    }  # fmt: skip


def _locals(
    shape: Shape, look: Columns, history: History, interval_ms: np.ndarray, rng: np.random.Generator
) -> Columns:
    """Half of the followers recorded their own view shortly after the leader's sample."""
    rf = shape.replication_factor
    row = np.repeat(np.arange(len(look["t"])), rf)
    replica = history.replicas[look["p"][row], np.tile(np.arange(rf), len(look["t"]))]
    chosen = (replica != look["leader"][row]) & (rng.random(len(row)) < 0.5) & ~look["zombie"][row]
    row, replica = row[chosen], replica[chosen]
    late = (rng.lognormal(10.5, 1.0, len(row))).astype(np.int64)
    return {
        "p": look["p"][row], "t": look["t"][row] + late, "node_id": replica, "leader_epoch": look["epoch"][row],
        "interval_ms": interval_ms[look["p"][row]], "leo": look["leo"][row], "hw": look["hw"][row],
        "fetch_leader_id": look["leader"][row],
    }  # fmt: skip
