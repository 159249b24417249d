"""Runs every command of transcript.md in a fresh cluster and writes its output there."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from page_cluster import analytics_server, page_cluster, secured_cluster
from shell_page import read_steps, with_outputs
from typed_page import grpcurl_path, install_tool, typed

PAGE = Path(__file__).with_name("transcript.md")


def main() -> int:
    """Rewrite the page; needs grpcurl itself, because only it has `describe`."""
    grpcurl = grpcurl_path()
    if grpcurl is None:
        print("grpcurl is not here: go install github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.4")
        return 1
    page = PAGE.read_text()
    steps = read_steps(page)
    live = [step for step in steps if "$ANALYTICS" in step.command or "$RUN_ID" in step.command]
    secured = [step for step in steps if "$SECURED" in step.command]
    open_ones = [step for step in steps if step not in [*live, *secured]]
    outputs: dict[int, str] = {}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        tools = install_tool(directory / "tools", grpcurl=grpcurl)
        for started, part in ((page_cluster, open_ones), (secured_cluster, secured), (analytics_server, live)):
            if sys.argv[1:] not in ([], [started.__name__]):
                continue
            with started(directory) as where:
                for step, code, output in typed(part, where, tools):
                    print(f"{code:3} {step.name}", flush=True)
                    outputs[step.line] = output
    sets = {step.line for step in steps if step.only_sets}
    PAGE.write_text(with_outputs(page, {line: output for line, output in outputs.items() if line not in sets}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
