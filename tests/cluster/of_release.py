"""Runs a role as a release with other feature levels: `LOWEST HIGHEST controller|node FLAGS`."""

from __future__ import annotations

import importlib
import sys

from strandline.core import types


def main() -> int:
    """Set these levels as this release's own, then run the role."""
    types.LOWEST, types.HIGHEST = int(sys.argv[1]), int(sys.argv[2])
    role = importlib.import_module(f"strandline.{sys.argv[3]}.__main__")
    return int(role.main(sys.argv[4:]))


if __name__ == "__main__":
    sys.exit(main())
