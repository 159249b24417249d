"""The scenario files of the distribution, and how a command finds one by its name.

Invariant: a file of the user's own is taken before one of the distribution with the same name.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "scenarios"
"""Every trace of docs/PROTOCOL.md as a file; `docs/SCENARIOS.md` lists them."""
_ENDING = ".scenario"


def shipped() -> list[Path]:
    """The files of the distribution, by name."""
    return sorted(FOLDER.glob(f"*{_ENDING}"))


def find(given: Path) -> Path:
    """The file that ``given`` means: itself, or the one of the distribution that is called so."""
    if given.exists() or given.name != str(given):
        return given
    named = FOLDER / f"{given.name.removesuffix(_ENDING)}{_ENDING}"
    return named if named.exists() else given


def title(path: Path) -> str:
    """The first sentence of a file's comment, in one line."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            return line.removeprefix("# ").strip()
    return ""
