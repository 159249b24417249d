"""Closes the windows of a partition, computes their rows, and determines the state to keep for the open ones.

`settle` is a pure function from the kept state and the events since to rows and the state to keep. It does not matter
how events are divided among calls, as long as none comes after its window was closed.

A window is closed when the watermark has passed its end, and it is certain that no transition is missing in it: the
next row of the controller was seen (each hour begins with a snapshot), the topic was deleted, or the controller has
been silent for the horizon. If its stalls still continue, S18 alone stays provisional until they are settled.

Invariant: a final row is written once, and not before all of its contents are known.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from strandline.export.layout import hour_folder, hour_of
from strandline_analytics.scope import HOUR_US, MOST_WINDOWS
from strandline_analytics.stream import figures as stream_figures
from strandline_analytics.stream.carry import Carry, Pending
from strandline_analytics.stream.control_fold import Held
from strandline_analytics.stream.scene import OpenScene, build, leave
from strandline_analytics.stream.spans import STALL_US, Episode, StallKey, episode

Row = dict[str, Any]
"""Values by column; columns that are absent are null."""


class TooManyWindows(Exception):
    """Events are further apart than a request can sensibly span."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The length of a window, and the horizon for which a silent controller is awaited, us."""

    step_us: int = HOUR_US
    horizon_us: int = HOUR_US + 900_000_000


@dataclass(frozen=True, slots=True)
class Settled:
    """The result of `settle`. ``rest``: events of open windows; ``wake_us``: the watermark at which to run it again."""

    rows: list[Row]
    carry: Carry
    rest: list[str]
    wake_us: int | None


def settle(carry: Carry, texts: Iterable[str], *, watermark_us: int, timing: Timing) -> Settled:
    """Close the windows that can be closed.

    Args:
        texts: every event of the open windows, as stories (`stories`).
        watermark_us: everything before it has come, us since 1970.

    Raises:
        ConflictingEvents: one event id has two contents.
        TooManyWindows: its events are too far apart.
    """
    if carry.is_done:
        return Settled([], carry, [], None)
    scene = build(carry, texts)
    times = scene.times
    if carry.start_us is None and not times:
        return Settled([], carry, [], None)
    step = timing.step_us
    start = carry.start_us if carry.start_us is not None else min(times) // step * step
    end = max(start, _closed_until(carry, scene, watermark_us, timing))
    now = max([end, *times])
    if (now - start) // step > MOST_WINDOWS:
        raise _too_many(start, now, step)
    counted = stream_figures.count(carry, scene, start_us=start, end_us=end, now_us=now, step_us=step)
    stalls = _stalls(carry, scene, watermark_us, timing)
    topic = max(scene.topics | ({carry.topic} if carry.topic else set()), default=None)
    is_reported = carry.held is not None or bool(scene.steps)
    certain = _certain_until(carry, scene, watermark_us, timing)
    rows, pending = _stall_rows(carry, scene, counted, stalls, end, certain, step)
    rows += [row for number in counted.numbers for row in _rows(number, counted.windows[number], end, step)]
    left, rest = leave(carry, scene, stalls, pending, start_us=end, horizon_us=timing.horizon_us)
    left.topic, left.moves = topic, counted.moves
    if left.held is not None and left.held.is_deleted and not pending:
        left, rest = Carry(is_done=True), []
    rows = [row | {"topic": topic} for row in rows] if is_reported else []
    return Settled(rows, left, rest, None if left.is_done else _wake(end, watermark_us, timing))


def _too_many(start: int, now: int, step: int) -> TooManyWindows:
    first, last = (hour_folder(hour_of(us)) for us in (start, now))
    return TooManyWindows(
        f"a partition has events in {first} and in {last}, with {(now - start) // step:,} windows from one to the "
        f"other, at most {MOST_WINDOWS:,} are counted. Most likely a clock was wrong there: take these files away with "
        "their manifests, or give a longer --step, and begin with a new checkpoint"
    )


def _closed_until(carry: Carry, scene: OpenScene, watermark: int, timing: Timing) -> int:
    step = timing.step_us
    passed = watermark // step * step
    held = _latest(carry, scene)
    if held is not None and held.is_deleted:
        return min(passed, (held.t // step + 1) * step)
    return min(passed, _certain_until(carry, scene, watermark, timing) // step * step)


def _certain_until(carry: Carry, scene: OpenScene, watermark: int, timing: Timing) -> int:
    """The moment before which the state of the partition can no longer change, us."""
    held = _latest(carry, scene)
    if held is not None and held.is_deleted:
        return watermark
    silent = watermark - timing.horizon_us
    return min(watermark, silent if held is None else max(silent, held.t))


def _latest(carry: Carry, scene: OpenScene) -> Held | None:
    return scene.steps[-1].held if scene.steps else carry.held


def _wake(end: int, watermark: int, timing: Timing) -> int:
    following = end + timing.step_us
    return following if watermark < following else following + timing.horizon_us


def _stalls(carry: Carry, scene: OpenScene, watermark: int, timing: Timing) -> dict[StallKey, Episode]:
    beyond = scene.seen_beyond()
    reported = {}
    for key, stall in scene.stalls(carry).items():
        passed = beyond[key[:2]].after(key[2]) if key[:2] in beyond else None
        one = episode(key, stall, scene.terms, passed, watermark, timing.horizon_us)
        if one is not None:
            reported[key] = one
    return reported


def _rows(number: int, figures: stream_figures.Figures, end: int, step: int) -> list[Row]:
    window = {"window_start": number * step, "window_end": (number + 1) * step, "final": (number + 1) * step <= end}
    known = {"known_us": figures.known_us, "coverage": float(figures.known_us) / float(step)}
    known |= {name: figures.flaws[name] for name in stream_figures.FLAWS}
    looked = {"known_us": figures.looked_us, "coverage": float(figures.looked_us) / float(step)}
    looked |= {name: figures.flaws[name] + figures.look_flaws[name] for name in stream_figures.FLAWS}
    return [
        {"stat": "s01"} | window | looked | stream_figures.lag_values(figures),
        {"stat": "s08"} | window | known | stream_figures.change_values(figures),
        {"stat": "s10"} | window | known | stream_figures.state_values(figures),
        *({"stat": "s15"} | window | known | values for values in stream_figures.flap_values(figures)),
    ]


def _stall_rows(
    carry: Carry,
    scene: OpenScene,
    counted: stream_figures.CountedWindows,
    stalls: dict[StallKey, Episode],
    end: int,
    certain: int,
    step: int,
) -> tuple[list[Row], list[Pending]]:
    under = [*carry.under_min, *scene.under_min()]
    rows, pending = [], []
    for window in [*carry.pending, *(_looked(number, counted.windows[number], step) for number in counted.numbers)]:
        stop = window.start_us + step
        own = [one for one in stalls.values() if one.t0 < stop and (one.t1 > window.start_us or not one.is_settled)]
        # Whether the ISR was below the minimum during a stall is certain once the state is certain up to its end.
        is_settled = stop <= end and all(one.is_settled and one.t1 <= certain for one in own)
        if stop <= end and not is_settled:
            pending.append(window)
        long = [one for one in own if one.t1 - one.t0 >= STALL_US]
        rows.append(
            {
                "stat": "s18",
                "window_start": window.start_us,
                "window_end": stop,
                "final": is_settled,
                "known_us": window.looked_us,
                "coverage": float(window.looked_us) / float(step),
                **window.flaws,
                **stream_figures.stall_values(long, under, window.start_us, stop),
            }
        )
    return rows, pending


def _looked(number: int, figures: stream_figures.Figures, step: int) -> Pending:
    flaws = {name: figures.flaws[name] + figures.look_flaws[name] for name in stream_figures.FLAWS}
    return Pending(number * step, figures.looked_us, flaws)
