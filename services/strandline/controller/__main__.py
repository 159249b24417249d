"""`python -m strandline.controller --data-dir DIR --bind HOST:PORT`, or `... COMMAND`: see `_COMMANDS`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

from strandline.controller import among, process
from strandline.controller.settings import ControllerSettings
from strandline.controller.tools import backup, migrate, recover, restore
from strandline.runtime.exit_codes import ExitCode, require_assertions, stop_process
from strandline.runtime.process import raise_open_file_limit, run_service
from strandline.runtime.settings import SettingsWrong, load_settings, parse_flags

_COMMANDS: Mapping[str, Callable[[Sequence[str]], ExitCode]] = {
    "backup": backup.main,
    "restore": restore.main,
    "recover": recover.main,
    "migrate": migrate.main,
    "hand-over": among.main,
}
_ABOUT = {
    "backup": "copy the store, beside a running controller or while it is stopped",
    "restore": "put a copy of the store in its place",
    "recover": "make a store of what the nodes' directories know, after a loss",
    "migrate": "move the store between SQLite and etcd",
    "hand-over": "leave deciding to another controller",
}


def main(arguments: Sequence[str]) -> ExitCode:
    """Read the settings and run, or do what the first word says; returns the exit code."""
    require_assertions()
    raise_open_file_limit()
    if arguments and (command := _COMMANDS.get(arguments[0])) is not None:
        return command(arguments[1:])
    flags, file = parse_flags(ControllerSettings, "strandline controller", arguments, _ABOUT)
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
