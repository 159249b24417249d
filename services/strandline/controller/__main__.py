"""`python -m strandline.controller --data-dir DIR --bind HOST:PORT`, or `... recover`, `backup`, `hand-over`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from strandline.controller import backup, hand_over, process, recover
from strandline.controller.settings import ControllerSettings
from strandline.runtime.exit_codes import ExitCode, require_assertions, stop_process
from strandline.runtime.process import run_service
from strandline.runtime.settings import SettingsWrong, load_settings, parse_flags


def main(arguments: Sequence[str]) -> ExitCode:
    """Read the settings and run, or recover; returns the exit code."""
    require_assertions()
    if arguments[:1] == ["recover"]:
        return recover.main(arguments[1:])
    if arguments[:1] == ["backup"]:
        return backup.main(arguments[1:])
    if arguments[:1] == ["hand-over"]:
        return hand_over.main(arguments[1:])
    flags, file = parse_flags(ControllerSettings, "strandline controller", arguments)
    try:
        settings = load_settings(ControllerSettings, flags=flags, file=file).settings
    except SettingsWrong as error:
        stop_process(ExitCode.USAGE, str(error))
    return run_service(
        lambda stop_asked: process.run(settings, stop_asked),
        log_format=settings.log_format,
        log_level=settings.log_level,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
