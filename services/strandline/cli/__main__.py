"""Where `strandline` and `python -m strandline.cli` begin."""

from __future__ import annotations

import os

COMPLETION_VARIABLE = "_STRANDLINE_COMPLETE"
"""Set by the scripts of `strandline completion` when a shell asks for words."""


def main() -> None:
    """Runs the command line; never returns."""
    from strandline.cli.app import app

    if COMPLETION_VARIABLE in os.environ:
        from typer._completion_classes import completion_init

        completion_init()
    app(prog_name="strandline")


if __name__ == "__main__":
    main()
