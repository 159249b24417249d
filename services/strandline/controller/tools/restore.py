"""`strandline controller restore`: puts a backup in place of the controllers' store (C45).

Invariant: a restored store is older than what nodes have seen, unless nothing happened since the backup, and nothing
here hides that: the controller, or a node, notices and names `recover` (C35, C40).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from strandline.controller.tools.etcd_access import add_files
from strandline.controller.tools.migrate import move
from strandline.runtime.exit_codes import ExitCode


def main(arguments: Sequence[str]) -> ExitCode:
    """``restore --from FILE --to STORE [--replace]``; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="strandline controller restore",
        description="Put a backup in place of the controllers' store, while every controller is stopped.",
    )
    parser.add_argument("--from", dest="file", required=True, metavar="FILE", help="what `controller backup` wrote")
    parser.add_argument(
        "--to", dest="target", required=True, metavar="STORE", help="sqlite:DIR, or etcd:HOST:PORT,HOST:PORT/PREFIX"
    )
    parser.add_argument("--replace", action="store_true", help="give up what the store holds of this cluster now")
    add_files(parser)
    given = parser.parse_args(arguments)
    code = move(f"backup:{given.file}", given.target, given, replaces=given.replace)
    if code is ExitCode.CLEAN:
        sys.stdout.write(
            "start a controller; if it or a node has seen more than the backup, it refuses to serve, and `strandline "
            "controller recover` with the nodes' directories brings back what they know\n"
        )
    return code
