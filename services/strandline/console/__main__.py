"""`python -m strandline.console --bootstrap HOST:PORT`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from strandline.console import process
from strandline.console.settings import ConsoleSettings
from strandline.rpc import transports
from strandline.runtime.exit_codes import ExitCode, require_assertions, stop_process
from strandline.runtime.process import run_service
from strandline.runtime.settings import SettingsWrong, load_settings, parse_flags


def main(arguments: Sequence[str]) -> ExitCode:
    """Read the settings and run; returns the exit code. The only line on stdout is the address."""
    require_assertions()
    flags, file = parse_flags(ConsoleSettings, "strandline console", arguments)
    try:
        settings = load_settings(ConsoleSettings, flags=flags, file=file).settings
    except SettingsWrong as error:
        stop_process(ExitCode.USAGE, str(error))
    transports.use(settings.grpc_transport)

    def started(address: str) -> None:
        print(address, flush=True)  # noqa: T201 - the one line that the starting process reads

    return run_service(
        lambda stop_asked: process.run(settings, stop_asked, started=started),
        log_format=settings.log_format,
        log_level=settings.log_level,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
