"""Runs a data node that only ever follows, an observer: the host process is `strandline.replica` (M60)."""

from __future__ import annotations

import os
import sys

from strandline.runtime.exit_codes import require_assertions

if __name__ == "__main__":
    require_assertions()
    os.execv(sys.executable, [sys.executable, "-m", "strandline.replica", "--roles", "follower", *sys.argv[1:]])
