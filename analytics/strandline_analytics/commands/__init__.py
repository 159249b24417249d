"""`strandline analytics ...`: registers the commands; each is in a file of its own.

Invariant: importing this module does not load Spark; a command loads it when it begins to work.
"""

from __future__ import annotations

import typer

from strandline.cli.connect import over_tls
from strandline.cli.failures import installed_elsewhere
from strandline_analytics.commands import (
    archive_classes,
    coverage,
    explain,
    report,
    run,
    serve,
    stats,
    stream,
    timeline,
)

app = typer.Typer(
    help="Query exported state events: statistics, timelines and reports, by Spark.",
    no_args_is_help=True,
)

for name, command in installed_elsewhere("analytics"):
    app.add_typer(command, name=name)
app.command("run")(run.run)
app.command("stats")(over_tls(stats.stats))
app.command("coverage")(over_tls(coverage.coverage))
app.command("stream")(stream.stream)
app.command("timeline")(over_tls(timeline.timeline))
app.command("explain")(over_tls(explain.explain))
app.command("report")(over_tls(report.report))
app.command("serve")(serve.serve)
app.command("archive-classes")(archive_classes.archive_classes)
