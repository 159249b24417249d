"""Where `strandline` and `python -m strandline.cli` begin."""

from __future__ import annotations

import os
import signal

COMPLETION_VARIABLE = "_STRANDLINE_COMPLETE"
"""Set by the scripts of `strandline completion` when a shell asks for words."""


def main() -> None:
    """Runs the command line; never returns."""
    # What is forked here becomes another program at once (PySpark starts its JVM so). What gRPC does for children that
    # go on as they are is then of no use, and while other threads are in gRPC it ends one child in eight.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
    if os.getpid() == 1:
        # The first process of a container: the kernel drops signals that it has not asked for, so that one which says
        # stop while the program still loads would be lost. Services replace this by a clean stop.
        signal.signal(signal.SIGTERM, lambda number, frame: os._exit(128 + number))
    from strandline.cli.app import app

    if COMPLETION_VARIABLE in os.environ:
        from typer._completion_classes import completion_init

        completion_init()
    app(prog_name="strandline")


if __name__ == "__main__":
    main()
