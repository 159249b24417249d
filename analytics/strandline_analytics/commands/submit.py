"""The script for `spark-submit`: runs `strandline analytics ...` in the session that it prepared, on any master.

    spark-submit [options of Spark] .../strandline_analytics/commands/submit.py run --input EXPORT --out RESULTS

Invariant: arguments, answers and exit codes are those of `strandline analytics`; `--memory` is left to Spark's options.
"""

from __future__ import annotations

import sys
from pathlib import Path

# Python looks for modules next to its script first; the files next to this one must not shadow others of their names.
sys.path[:] = [path for path in sys.path if path != str(Path(__file__).parent)]


def main() -> None:
    """Run the command that the arguments name."""
    from strandline.runtime.exit_codes import require_assertions

    require_assertions()
    from strandline_analytics.commands import app

    app(prog_name="strandline analytics")


if __name__ == "__main__":
    main()
