"""Tells a trace in words: who did what, and what that changed. A record is mK/eE, the K-th written, in leader epoch E.

Invariant: nothing is decided here; a step is described by the difference between the states before and after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from strandline.core.log.follower import FetchState
from strandline_sim.searches.exhaust.actions import LOST
from strandline_sim.searches.exhaust.local import Following, Leading, Local, Rec
from strandline_sim.searches.exhaust.space import Found, Space, Step, View


def tell(found: Found, space: Space) -> list[str]:
    """One line for each step, then the broken property."""
    teller = _Teller()
    views = [space.view(state) for state in found.states]
    lines = [teller.line(*each) for each in zip(found.steps, views, views[1:], strict=False)]
    if found.note:
        lines.append(f"{found.steps[-1].kind} at {_name(found.steps[-1].node)}: the process ends: {found.note}")
    return [*lines, f"broken: {found.broken}. {teller.standing(views[-1])}"]


class _Teller:
    def __init__(self) -> None:
        self._numbers: dict[tuple[int, Rec], int] = {}

    def line(self, step: Step, before: View, after: View) -> str:
        """One step."""
        if step.kind == "write":
            log = after.nodes[step.node].log
            self._numbers[len(log) - 1, log[-1]] = len(self._numbers)
        return "; ".join([self._sentence(step, before, after), *self._changes(before, after)])

    def standing(self, view: View) -> str:
        """The ISR, and the role and log of every node."""
        nodes = ", ".join(self._node(local) for local in view.nodes)
        return f"ISR {_names(view.cluster.now.isr)}; {nodes}"

    def _node(self, local: Local) -> str:
        part = "leads" if isinstance(local.part, Leading) else "follows"
        return f"{_name(local.node_id)} {part} e{local.leader_epoch}, HW {local.hw}, [{self._records(local.log)}]"

    def _records(self, log: Iterable[Rec], start: int = 0) -> str:
        return " ".join(
            f"m{self._numbers.get((start + i, record), '?')}/e{record.epoch}" for i, record in enumerate(log)
        )

    def _sentence(self, step: Step, before: View, after: View) -> str:
        who, other = _name(step.node), _name(step.other)
        match step.kind:
            case "elect":
                return f"the controller elects {who}, e{step.detail}"
            case "fence":
                return f"the controller fences {who}, which returns at once; {other} leads e{step.detail}"
            case "learn":
                return f"{who} learns e{step.detail} and {'leads' if step.other == step.node else f'follows {other}'}"
            case "learn, ask":
                return f"{who} learns e{step.detail}, follows {other} and asks it where its latest epoch ended"
            case "write":
                log = after.nodes[step.node].log
                return f"{who} appends {self._records(log[-1:], len(log) - 1)} at {len(log) - 1}"
            case "ask":
                return f"{who} {_at(before, step.node)} asks {other} {_at(before, step.other)} where its epoch ended"
            case "fetch":
                return self._fetch(step, before, after)
            case "shrink":
                return f"{who} {'drops' if step.applied else 'proposes to drop'} {other}"
            case "alter":
                return f"{who}'s proposal reaches the controller, the answer {who}"
            case _:
                return f"{who}'s proposal reaches the controller, the answer is lost"

    def _fetch(self, step: Step, before: View, after: View) -> str:
        at = len(before.nodes[step.node].log)
        asked = f"{_name(step.node)} {_at(before, step.node)} fetches at {at} from {_name(step.other)}"
        asked += f" {_at(before, step.other)}"
        if step.detail == LOST:
            return f"{asked}, the answer is lost"
        gained = after.nodes[step.node].log[at:]
        return f"{asked}, gets {self._records(gained, at)}" if gained else f"{asked}, gets no record"

    def _changes(self, before: View, after: View) -> Iterator[str]:
        for old, new in zip(before.nodes, after.nodes, strict=True):
            kept = len(new.log)
            if old.log[:kept] != new.log:
                kept = next((i for i, pair in enumerate(zip(old.log, new.log, strict=False)) if pair[0] != pair[1]), 0)
                kept = min(kept, len(old.log)) if old.log[: len(new.log)] != new.log[: len(old.log)] else len(old.log)
            if kept < len(old.log):
                yield f"{_name(new.node_id)} cuts to {kept}"
            if old.hw != new.hw:
                yield f"HW of {_name(new.node_id)} {new.hw}"
            if _gave_up(new) and not _gave_up(old):
                yield f"{_name(new.node_id)} stops until the next epoch"
        if before.cluster.now.isr != after.cluster.now.isr:
            yield f"ISR {_names(after.cluster.now.isr)}"


def _gave_up(local: Local) -> bool:
    return isinstance(local.part, Following) and local.part.state is FetchState.FAILED


def _at(view: View, node: int) -> str:
    return f"(e{view.nodes[node].leader_epoch})"


def _name(node: int) -> str:
    return "no node" if node < 0 else chr(ord("A") + node)


def _names(nodes: Iterable[int]) -> str:
    return "{" + ",".join(map(_name, nodes)) + "}"
