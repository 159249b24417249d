"""`python -m strandline.controller --data-dir DIR --bind HOST:PORT`, or `... COMMAND`: see `_COMMANDS`."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Mapping, Sequence

from strandline.controller import among
from strandline.controller.process import ControllerProcess
from strandline.controller.settings import ControllerSettings, StoreKind
from strandline.controller.tools import backup, migrate, recover
from strandline.metadata.store import StoreFailed, StoreInUse, StoreMarked
from strandline.rpc import transports
from strandline.rpc.server import PortTaken
from strandline.runtime.exit_codes import ExitCode, require_assertions, stop_process
from strandline.runtime.process import keep_what_is_loaded, raise_open_file_limit, run_service
from strandline.runtime.settings import SettingsWrong, load_settings, parse_flags

_COMMANDS: Mapping[str, Callable[[Sequence[str]], ExitCode]] = {
    "backup": backup.main,
    "restore": backup.restore,
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
    """Read the settings and run, or run the command that the first argument names; return the exit code."""
    require_assertions()
    raise_open_file_limit()
    if arguments and (command := _COMMANDS.get(arguments[0])) is not None:
        return command(arguments[1:])
    flags, file = parse_flags(ControllerSettings, "strandline controller", arguments, _ABOUT)
    try:
        settings = load_settings(ControllerSettings, flags=flags, file=file).settings
    except SettingsWrong as error:
        stop_process(ExitCode.USAGE, str(error))
    transports.use(settings.grpc_transport)
    return run_service(
        lambda stop_asked: run(settings, stop_asked),
        log_format=settings.log_format,
        log_level=settings.log_level,
    )


def _copy_when_asked(process: ControllerProcess) -> None:
    """Copy the store on SIGUSR1, from `strandline controller backup`: no other process can read the store."""
    loop = asyncio.get_running_loop()
    copies: set[asyncio.Task[None]] = set()

    def begin() -> None:
        copy = loop.create_task(process.copy_store())
        copies.add(copy)
        copy.add_done_callback(copies.discard)

    loop.add_signal_handler(signal.SIGUSR1, begin)


def process_of(settings: ControllerSettings) -> ControllerProcess:
    """The process that these settings ask for."""
    if settings.store is StoreKind.SQLITE:
        return ControllerProcess(settings)
    # Imported here, because a single controller never needs it.
    from strandline.controller.several import SeveralProcess

    return SeveralProcess(settings)


async def run(settings: ControllerSettings, stop_asked: asyncio.Event) -> ExitCode:
    """Run a controller until it is asked to stop."""
    process = process_of(settings)
    try:
        await process.start()
    except StoreInUse as error:
        stop_process(ExitCode.DIRECTORY_IN_USE, str(error))
    except StoreMarked as error:
        stop_process(ExitCode.REFUSED, str(error))
    except StoreFailed as error:
        stop_process(ExitCode.STORAGE_FAILED, str(error))
    except PortTaken as error:
        stop_process(ExitCode.PORT_TAKEN, str(error))
    except ValueError as error:
        stop_process(ExitCode.USAGE, str(error))
    _copy_when_asked(process)
    keep_what_is_loaded()
    await stop_asked.wait()
    return await process.shut_down()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
