"""What is kept when windows were closed: which events still count, and what replaces all the others.

Invariant: folding what is kept and the events that stay gives for open windows what folding everything would.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from strandline_analytics.stream import spans
from strandline_analytics.stream.carry import Carry, Pending
from strandline_analytics.stream.feed import Story, identity
from strandline_analytics.stream.scene import OpenScene
from strandline_analytics.stream.spans import Episode, LastLook, SampleSpan, Series, Stall, StallKey, series_of


def leave(
    carry: Carry,
    scene: OpenScene,
    reported: Mapping[StallKey, Episode],
    pending: list[Pending],
    *,
    start_us: int,
    horizon_us: int,
) -> tuple[Carry, list[str]]:
    """What is kept of everything before ``start_us``, and the events that are not before it.

    Args:
        reported: the stalls that there are.
        pending: closed windows that wait for stalls to end.
    """
    gone = [step for step in scene.steps if step.held.t < start_us]
    looks = [look for look in scene.looks if _is_before(look, start_us)]
    lasts = _last_looks(looks, start_us - horizon_us)
    advances = [story for story in scene.advances if story["ts_wall_us"] < start_us]
    held = gone[-1].held if gone else carry.held
    first = min([start_us, *(one.start_us for one in pending)])
    counting = {key for key, one in reported.items() if not one.is_settled or one.t1 > first}
    stalls = _stalls(carry, looks, lasts, scene.looks, advances, counting)
    # A last look is folded again with its true end, so a stall may still be found to begin at it.
    begun = [look.at for look in lasts.values() if look.is_leader and spans.is_waiting(look)]
    floor = min([first, *begun, *(stall.seen for stall in stalls.values() if stall.seen is not None)])
    under = [span for span in scene.under_min() if held is not None and span[1] <= held.t]
    kept = Carry(
        start_us=start_us,
        held=held,
        # Of these two the earliest counts, so events that stay may give it again.
        terms=replace(carry.terms.after(gone), taken_up=scene.terms.taken_up),
        first_looks=scene.first_looks,
        last_looks={series: LastLook(look.at, look.story) for series, look in lasts.items()},
        advances=_last_advances([*carry.advances, *advances], start_us - horizon_us),
        stalls=stalls,
        pending=pending,
        under_min=sorted({span for span in (*carry.under_min, *under) if span[1] > floor}),
    )
    return kept, _rest(scene, start_us)


def _rest(scene: OpenScene, start_us: int) -> list[str]:
    stories = [
        *(step.story for step in scene.steps if step.held.t >= start_us),
        *(look.story for look in scene.looks if look.is_new and not _is_before(look, start_us)),
        *(story for story in (*scene.advances, *scene.others) if story["ts_wall_us"] >= start_us),
    ]
    # Copies stay as many as they were, for they are counted in their window.
    return [text for story in stories for text in [scene.texts[identity(story)]] * scene.copies[identity(story)]]


def _is_before(look: SampleSpan, start_us: int) -> bool:
    # A look from before its own term counts from the term on.
    return not look.is_new or (look.at < start_us and (look.is_zombie or look.t0 < start_us))


def _last_looks(looks: Iterable[SampleSpan], silent_us: int) -> dict[Series, SampleSpan]:
    lasts: dict[Series, SampleSpan] = {}
    for look in looks:
        series = series_of(look.story)
        if series not in lasts or look.story["seq"] > lasts[series].story["seq"]:
            lasts[series] = look
    # A replica that was silent for the horizon starts again.
    return {series: look for series, look in lasts.items() if max(look.t1, look.at) > silent_us}


def _stalls(
    carry: Carry,
    looks: Iterable[SampleSpan],
    lasts: Mapping[Series, SampleSpan],
    members: Iterable[SampleSpan],
    advances: Iterable[Story],
    counting: Collection[StallKey],
) -> dict[StallKey, Stall]:
    """Stalls without the last looks, which are folded again with their true ends."""
    stalls = carry.copy_of_stalls()
    waiting = {spans.stall_key(look) for look in lasts.values() if look.is_leader and spans.is_waiting(look)}
    for key in waiting:
        stalls.setdefault(key, Stall())
    others = [look for look in looks if lasts.get(series_of(look.story)) is not look]
    spans.take(stalls, others, members, [*carry.advances, *advances])
    return {key: stall for key, stall in stalls.items() if key in waiting or key in counting}


def _last_advances(advances: Iterable[Story], silent_us: int) -> list[Story]:
    lasts: dict[tuple[int, int], Story] = {}
    for story in advances:
        reign = (story["leader_epoch"], story["incarnation"])
        if reign not in lasts or story["new_hw"] >= lasts[reign]["new_hw"]:
            lasts[reign] = story
    return [story for story in lasts.values() if story["last_us"] > silent_us]
