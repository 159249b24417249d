"""Runs `strandline` as in an environment with the base install alone: `base_install.py [EXTRA...] -- WORDS`.

Libraries that belong neither to the base install nor to a named extra are hidden from the import system.
"""

from __future__ import annotations

import sys
import tomllib
from importlib import metadata
from importlib.machinery import ModuleSpec
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())["project"]


def installed_with(extras: list[str]) -> set[str]:
    """The canonical names of all distributions that these extras install."""
    found: set[str] = set()
    lines = [*PROJECT["dependencies"], *(line for extra in extras for line in PROJECT["optional-dependencies"][extra])]
    todo = [Requirement(line) for line in lines]
    while todo:
        needed = todo.pop()
        name = canonicalize_name(needed.name)
        if name == PROJECT["name"]:
            todo += [Requirement(line) for extra in needed.extras for line in PROJECT["optional-dependencies"][extra]]
        elif name not in found:
            found.add(name)
            todo += [need for need in map(Requirement, metadata.requires(name) or ()) if _applies(need, needed)]
    return found


def _applies(need: Requirement, of: Requirement) -> bool:
    return need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in ("", *of.extras))


class Hidden:
    """A finder that rejects the modules of all other distributions."""

    def __init__(self, extras: list[str]) -> None:
        kept = installed_with(extras) | {PROJECT["name"]}
        self._names = {
            module
            for module, distributions in metadata.packages_distributions().items()
            if not any(canonicalize_name(distribution) in kept for distribution in distributions)
        }

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Nothing for a module that is not hidden; the next finder is used.

        Raises:
            ModuleNotFoundError: like the import system for a module that is not installed.
        """
        if name.partition(".")[0] in self._names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


if __name__ == "__main__":
    cut = sys.argv.index("--")
    sys.meta_path.insert(0, Hidden(sys.argv[1:cut]))
    sys.argv = ["strandline", *sys.argv[cut + 1 :]]
    from strandline.cli.__main__ import main

    main()
