"""The entry point of `strandline` and `python -m strandline.cli`."""

from __future__ import annotations

import os
import signal
import sys

COMPLETION_VARIABLE = "_STRANDLINE_COMPLETE"
"""Set by the scripts of `strandline completion` when a shell asks for words."""


def main() -> None:
    """Run the command line; never returns."""
    from strandline.runtime.exit_codes import require_assertions

    require_assertions()
    from strandline.runtime.variables import unknown_variable

    if wrong := unknown_variable(os.environ, ()):
        print(f"strandline: {wrong}", file=sys.stderr)
        sys.exit(2)
    # Sets how gRPC behaves before any command imports it.
    import strandline.rpc  # noqa: F401

    if os.getpid() == 1:
        # The first process of a container: the kernel drops signals that it has not asked for, so that one which says
        # stop while the program still loads would be lost. Services replace this by a clean stop.
        signal.signal(signal.SIGTERM, lambda number, frame: os._exit(128 + number))
    from strandline.cli.app import app

    if COMPLETION_VARIABLE in os.environ:
        from typer._completion_classes import completion_init

        completion_init()
    try:
        app(prog_name="strandline")
    except ImportError as error:
        from strandline.cli.extras import missing_extra
        from strandline.cli.failures import EXIT_REFUSED

        line = missing_extra(error, next((word for word in sys.argv[1:] if not word.startswith("-")), ""))
        if line is None:
            raise
        print(f"strandline: {line}", file=sys.stderr)
        sys.exit(EXIT_REFUSED)


if __name__ == "__main__":
    main()
