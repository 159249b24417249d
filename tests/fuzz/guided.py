"""Coverage-guided fuzzing of one target with Atheris, for `make test-deep`; takes TARGET and libFuzzer's options.

Invariant: the oracle is that of the hypothesis test. New inputs that reach new code go to ``.fuzz/TARGET``, which is
not committed; one that fails is written there as ``crash-...`` and belongs into ``finds/TARGET`` once it is fixed.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import atheris
import structlog

HERE = Path(__file__).parent

with atheris.instrument_imports(include=["strandline"], exclude=["strandline.v1"]):
    from targets import TARGETS, oracle

    TARGET = sys.argv[1] if len(sys.argv) > 1 else ""
    if TARGET not in TARGETS:
        sys.exit(f"name one of: {' '.join(TARGETS)}")
    CHECK = oracle(TARGET)


def main() -> None:
    """Fuzz until a find or the limits in the options."""
    logging.disable()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    grown = Path(".fuzz") / TARGET
    grown.mkdir(parents=True, exist_ok=True)
    seeds = [str(folder) for kind in ("corpus", "finds") if (folder := HERE / kind / TARGET).is_dir()]
    defaults = [f"-max_len={TARGETS[TARGET].input_bytes}", f"-artifact_prefix={grown}/", "-timeout=60", "-verbosity=0"]
    atheris.Setup([sys.argv[0], *defaults, *sys.argv[2:], str(grown), *seeds], CHECK)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
