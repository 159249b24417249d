"""Decides which of several images of the cluster's state share a history, and which branched off (C38).

Invariant: one image is called older than another only if the reigns that led to the later one, as far as they are
known, contain it. What cannot be shown to share a history is a branch of its own: recovery then believes less.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from strandline.core.messages import MetadataImage, Position
from strandline.core.reign_history import Reigns, Standing, standing


class Branch(NamedTuple):
    """A newest image, and all given images that it continues, itself among them."""

    head: MetadataImage
    images: tuple[MetadataImage, ...]


class Lineage:
    """The reigns that given images and a store name, each with the one before it."""

    def __init__(self, images: Iterable[MetadataImage], reigns: Reigns, head: int) -> None:
        """``reigns`` and ``head``, the last offset, are the store's; both empty without one."""
        self._reigns, self._head = reigns, head
        self._parents = {each.reign_id: (each.previous_reign_id, each.first_offset) for each in reigns.values()}
        for image in images:
            for reign in image.reigns:
                self._parents.setdefault(reign.reign_id, (reign.previous_reign_id, reign.first_offset))

    def contains(self, newer: Position, older: Position) -> bool:
        """Whether the history that led to ``newer`` goes through ``older``."""
        if self._is_stored(newer) and self._is_stored(older):
            return older.metadata_offset <= newer.metadata_offset
        reign_id, last, seen = newer.reign_id, newer.metadata_offset, set[str]()
        while reign_id and reign_id not in seen:
            if reign_id == older.reign_id:
                return older.metadata_offset <= last
            seen.add(reign_id)
            reign_id, first = self._parents.get(reign_id, ("", 0))
            last = first - 1
        return False

    def _is_stored(self, position: Position) -> bool:
        return standing(self._reigns, self._head, position) is Standing.KNOWN


def position_sent(image: MetadataImage) -> Position | None:
    """The newest position that the owner of an image was sent: that of the image, or one that an answer named."""
    place, proof = image.place, image.position
    if place is None or proof is None or proof.reign_id != place.reign_id:
        return place
    return Position(place.reign_id, max(place.metadata_offset, proof.metadata_offset))


def branches(images: Sequence[MetadataImage], lineage: Lineage) -> list[Branch]:
    """The branches that the images are of, the one with the highest numbers first.

    Images of a release without reign ids can only be compared by their numbers: they make one branch with all others.
    """
    by_number = sorted(images, key=lambda image: (image.controller_epoch, image.metadata_offset), reverse=True)
    places = [position_sent(image) for image in by_number]
    found: list[Branch] = []
    covered: set[int] = set()
    for index, head in enumerate(by_number):
        if index in covered:
            continue
        part = [at for at, place in enumerate(places) if _continues(lineage, places[index], place)]
        covered.update(part)
        found.append(Branch(head, tuple(by_number[at] for at in part)))
    return found


def _continues(lineage: Lineage, newer: Position | None, older: Position | None) -> bool:
    return newer is None or older is None or lineage.contains(newer, older)
