"""Which nodes of a directed graph lie on cycles.

Source: R. Tarjan, Depth-first search and linear graph algorithms (1972), without recursion.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping


def cycles(edges: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """The largest sets of nodes each of which reaches all of its set and itself; sorted, as their nodes are.

    ``edges``: the nodes that each node points to. A node that points to itself is a set of one.
    """
    search = _Search({node: sorted(set(edges[node])) for node in sorted(edges)})
    found = [sorted(each) for each in search.components() if len(each) > 1 or each[0] in edges.get(each[0], ())]
    return sorted(found)


class _Search:
    """One depth-first walk over all nodes."""

    def __init__(self, edges: Mapping[str, list[str]]) -> None:
        self._edges = edges
        self._number: dict[str, int] = {}
        self._lowest: dict[str, int] = {}
        self._open: dict[str, None] = {}
        """The nodes whose component is not complete, in the order in which they were met."""

    def components(self) -> Iterator[list[str]]:
        """The strongly connected components."""
        for root in self._edges:
            if root not in self._number:
                yield from self._from(root)

    def _from(self, root: str) -> Iterator[list[str]]:
        way = [(root, self._meet(root))]
        while way:
            node, rest = way[-1]
            onward = next(rest, None)
            if onward is None:
                way.pop()
                if way:
                    self._lowest[way[-1][0]] = min(self._lowest[way[-1][0]], self._lowest[node])
                if self._lowest[node] == self._number[node]:
                    yield self._close(node)
            elif onward not in self._number:
                way.append((onward, self._meet(onward)))
            elif onward in self._open:
                self._lowest[node] = min(self._lowest[node], self._number[onward])

    def _meet(self, node: str) -> Iterator[str]:
        self._number[node] = self._lowest[node] = len(self._number)
        self._open[node] = None
        return iter(self._edges.get(node, ()))

    def _close(self, node: str) -> list[str]:
        component: list[str] = []
        while not component or component[-1] != node:
            component.append(self._open.popitem()[0])
        return component
