"""`strandline analytics ...`: which commands there are; each is in a file of its own.

Invariant: importing this file loads no Spark; a command loads it when it begins to work.
"""

from __future__ import annotations

import typer

from strandline.cli import (
    analytics_classes,
    analytics_collect,
    analytics_coverage,
    analytics_explain,
    analytics_import,
    analytics_report,
    analytics_run,
    analytics_serve,
    analytics_stats,
    analytics_stream,
    analytics_timeline,
)
from strandline.cli.over_tls import over_tls

app = typer.Typer(
    help="Query exported state events: statistics, timelines and reports, by Spark.",
    no_args_is_help=True,
)

app.add_typer(analytics_import.app, name="import")
app.add_typer(analytics_collect.app, name="collect")
app.command("run")(analytics_run.run)
app.command("stats")(over_tls(analytics_stats.stats))
app.command("coverage")(over_tls(analytics_coverage.coverage))
app.command("stream")(analytics_stream.stream)
app.command("timeline")(over_tls(analytics_timeline.timeline))
app.command("explain")(over_tls(analytics_explain.explain))
app.command("report")(over_tls(analytics_report.report))
app.command("serve")(analytics_serve.serve)
app.command("archive-classes")(analytics_classes.archive_classes)
