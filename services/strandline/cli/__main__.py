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
    from strandline.runtime.settings import unknown_variable, wrong_transport

    if wrong := unknown_variable(os.environ, ()) or wrong_transport(os.environ):
        print(f"strandline: {wrong}", file=sys.stderr)
        sys.exit(2)
    # Sets how gRPC behaves before any command imports it.
    import strandline.rpc  # noqa: F401

    # Installed before anything else loads: the first process of a container ignores signals without a handler.
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(128 + number))
    from strandline.cli.app import app

    if COMPLETION_VARIABLE in os.environ:
        from typer._completion_classes import completion_init

        completion_init()
    is_terminated = False

    def interrupt(number: int, frame: object) -> None:
        # SIGTERM ends a command like Ctrl-C, in good order: a consumer leaves its group. Services replace this handler.
        nonlocal is_terminated
        is_terminated = True
        ctrl_c = signal.getsignal(signal.SIGINT)
        if not callable(ctrl_c):
            # A shell script makes its background jobs ignore Ctrl-C.
            raise KeyboardInterrupt
        ctrl_c(signal.SIGINT, None)

    signal.signal(signal.SIGTERM, interrupt)
    try:
        app(prog_name="strandline")
    except SystemExit:
        if is_terminated:
            sys.exit(128 + signal.SIGTERM)
        raise
    except KeyboardInterrupt:
        # Typer is still assembling its commands; once a command runs, it handles the end itself.
        sys.exit(128 + (signal.SIGTERM if is_terminated else signal.SIGINT))
    except ImportError as error:
        from strandline.cli.failures import EXIT_REFUSED, missing_extra

        line = missing_extra(error, next((word for word in sys.argv[1:] if not word.startswith("-")), ""))
        if line is None:
            raise
        print(f"strandline: {line}", file=sys.stderr)
        sys.exit(EXIT_REFUSED)


if __name__ == "__main__":
    main()
