"""Runs a data node that may lead: the host process is `strandline.replica`, this is its name by role."""

from __future__ import annotations

import os
import sys

from strandline.runtime.exit_codes import require_assertions

if __name__ == "__main__":
    require_assertions()
    os.execv(sys.executable, [sys.executable, "-m", "strandline.replica", "--roles", "leader,follower", *sys.argv[1:]])
