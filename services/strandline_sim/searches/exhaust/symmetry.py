"""Which states differ in nothing but the names of the replicas, and which of them represents all.

Invariant: the rules treat all replicas alike (the order of assignment, which does not, is left open by `control`), so
what can follow from a state is what can follow from it with the names exchanged, with the names exchanged.
"""

from __future__ import annotations

from itertools import permutations

from strandline_sim.searches.breadth_first import Interned
from strandline_sim.searches.exhaust.local import Data, Image, Leading, Local, Rec
from strandline_sim.searches.exhaust.settling import ControllerSide

Names = tuple[int, ...]
"""``names[old]`` is the new name of a replica."""

State = tuple[int, ...]


class _Renamed:
    """Values under other names, by number."""

    __slots__ = ("clusters", "data", "locals")

    def __init__(self) -> None:
        self.clusters: dict[int, int] = {}
        self.data: dict[int, int] = {}
        self.locals: dict[int, int] = {}


class Symmetry:
    """Finds the representative of a state."""

    def __init__(self, clusters: Interned[ControllerSide], data: Interned[Data], locals_: Interned[Local]) -> None:
        self._clusters = clusters
        self._data = data
        self._locals = locals_
        self._looks: Interned[tuple[object, ...]] = Interned()
        self._look_of: list[int] = []
        self._orders: dict[tuple[int, ...], tuple[Names, ...]] = {}
        self._tables: dict[Names, _Renamed] = {}

    def representative(self, state: State) -> State:
        """The one state of its kind that is searched: nodes in order of their looks, and the least of those."""
        nodes = state[2:]
        if max(nodes) >= len(self._look_of):
            self._describe()
        look_of = self._look_of
        looks = tuple([look_of[n] for n in nodes])
        orders = self._orders.get(looks)
        if orders is None:
            orders = self._orders[looks] = _orders(looks)
        if len(orders) == 1:
            return state if orders[0] == _SAME[len(nodes)] else self._renamed(state, orders[0])
        return min([self._renamed(state, names) for names in orders])

    def _renamed(self, state: State, names: Names) -> State:
        table = self._tables.get(names)
        if table is None:
            table = self._tables[names] = _Renamed()
        clusters, data, nodes = table.clusters, table.data, table.locals
        try:
            out = [clusters[state[0]], data[state[1]], *names]
            for old, local in enumerate(state[2:]):
                out[2 + names[old]] = nodes[local]
        except KeyError:
            self._rename(state, names, table)
            return self._renamed(state, names)
        return tuple(out)

    def _rename(self, state: State, names: Names, table: _Renamed) -> None:
        """Fill in what the table lacks for this state."""
        if state[0] not in table.clusters:
            now, published = self._clusters.values[state[0]]
            renamed = ControllerSide(_image(now, names), tuple([_image(image, names) for image in published]))
            table.clusters[state[0]] = self._clusters.id_of(renamed)
        if state[1] not in table.data:
            written, committed = self._data.values[state[1]]
            table.data[state[1]] = self._data.id_of(Data(written, _log(committed, names)))
        for local in state[2:]:
            if local not in table.locals:
                table.locals[local] = self._locals.id_of(_node(self._locals.values[local], names))

    def _describe(self) -> None:
        for local in self._locals.values[len(self._look_of) :]:
            self._look_of.append(self._looks.id_of(_look(local)))


_SAME = {count: tuple(range(count)) for count in range(8)}


def _orders(looks: tuple[int, ...]) -> tuple[Names, ...]:
    """Every way to name the nodes so that their looks are in order."""
    wanted = sorted(looks)
    return tuple(
        names
        for names in permutations(range(len(looks)))
        if all(wanted[names[old]] == look for old, look in enumerate(looks))
    )


def _look(local: Local) -> tuple[object, ...]:
    """What of a node is the same whatever the replicas are called."""
    part = local.part
    epochs = tuple(record.epoch for record in local.log)
    if isinstance(part, Leading):
        leos = sorted(-1 if leo is None else leo for leo in part.remote_leos)
        sizes = (len(part.isr), len(part.proposed or ()), part.asking, part.epoch_start_offset, len(part.agreed), *leos)
        return (local.leader_epoch, local.hw, local.epochs, epochs, True, sizes)
    return (local.leader_epoch, local.hw, local.epochs, epochs, False, None if part is None else part.state)


def _image(image: Image, names: Names) -> Image:
    return Image(
        None if image.leader is None else names[image.leader],
        image.leader_epoch,
        tuple(sorted([names[n] for n in image.isr])),
        tuple(sorted([names[n] for n in image.elr])),
        image.partition_epoch,
    )


def _log(log: tuple[Rec, ...], names: Names) -> tuple[Rec, ...]:
    return tuple(Rec(record.epoch, names[record.writer]) for record in log)


def _node(local: Local, names: Names) -> Local:
    part = local.part
    if isinstance(part, Leading):
        leos = list(part.remote_leos)
        for old, leo in enumerate(part.remote_leos):
            leos[names[old]] = leo
        part = part._replace(
            isr=tuple(sorted([names[n] for n in part.isr])),
            proposed=None if part.proposed is None else tuple(sorted([names[n] for n in part.proposed])),
            remote_leos=tuple(leos),
            agreed=tuple(sorted(names[old] for old in part.agreed)),
        )
    image = None if local.image is None else _image(local.image, names)
    return Local(names[local.node_id], image, _log(local.log, names), local.hw, local.epochs, part)
