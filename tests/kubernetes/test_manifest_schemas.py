"""Every object that deploy/kubernetes renders is valid in Kubernetes, in the three newest minors."""

from __future__ import annotations

from pathlib import Path

import kubernetes_validate
import pytest
from kustomized import FOREIGN, RENDERED, Object, needs_kubectl, objects

pytestmark = needs_kubectl


def _newest_minors(count: int) -> list[str]:
    """The newest patch of each of the newest minors whose schemas are installed."""
    folder = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
    versions = [
        tuple(map(int, path.name.removeprefix("v").partition("-")[0].split(".")))
        for path in folder.iterdir()
        if path.name.startswith("v")
    ]
    newest = {version[:2]: version for version in sorted(versions)}
    return [".".join(map(str, newest[minor])) for minor in sorted(newest)[-count:]]


MINORS = _newest_minors(3)


def test_there_are_three_minors() -> None:
    """The installed schemas are those of at least three minors."""
    assert len(MINORS) == 3


@pytest.mark.parametrize("version", MINORS)
@pytest.mark.parametrize("name", RENDERED)
def test_every_object_fits_its_schema(name: str, version: str) -> None:
    """No unknown field, no wrong type; a kind without a schema belongs to another operator, known by name."""
    found: list[Object] = [each for each in objects(name) if each["kind"] not in FOREIGN]

    assert len(found) >= 10
    for each in found:
        kubernetes_validate.validate(each, version, strict=True)


@pytest.mark.parametrize("name", RENDERED)
def test_every_object_says_where_it_belongs(name: str) -> None:
    """All but the namespace itself and cluster-wide ones are in the overlay's namespace, and part of Strandline."""
    for each in objects(name):
        if each["kind"] != "Namespace":
            assert each["metadata"].get("namespace") == "strandline", each["metadata"]["name"]
