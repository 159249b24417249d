"""`strandline analytics serve`: serves statistics, timelines and states of partitions by gRPC, from one Spark session.

Invariant: the only line on stdout is the address, once calls are answered; a requested stop ends with exit code 0.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.connect import TlsCa, TlsCert, TlsKey
from strandline.cli.durations import Duration, duration_option, read_duration
from strandline.cli.failures import EXIT_UNREACHABLE, CommandFailed, fail
from strandline_analytics.commands.answers import Catalog, FormatOption, Namespace, destination_of
from strandline_analytics.commands.options import Inputs, Memory, existing
from strandline_analytics.commands.progress import DEFAULT_MEMORY, check_installed, is_submitted, spark_session
from strandline_analytics.tables import ResultFormat
from strandline_analytics.tables.destination import Destination

if TYPE_CHECKING:
    from strandline.core.messages import Endpoint
    from strandline.runtime.exit_codes import ExitCode
    from strandline_analytics.service.settings import AnalyticsSettings
    from strandline_analytics.session import Session

RESULTS = "strandline-results"

Bind = Annotated[
    str, typer.Option("--bind", metavar="HOST:PORT", help="Address to serve; with port 0 the kernel chooses one.")
]
HealthBind = Annotated[
    str,
    typer.Option(
        "--health-bind",
        envvar="STRANDLINE_HEALTH_BIND",
        metavar="HOST:PORT",
        help="Address of grpc.health.v1 without TLS, for probes.",
    ),
]
MetricsTls = Annotated[
    bool,
    typer.Option(
        "--metrics-tls",
        envvar="STRANDLINE_METRICS_TLS",
        help="Serve metrics by HTTPS, to callers with a certificate of the authority.",
    ),
]
MetricsBind = Annotated[
    str,
    typer.Option(
        "--metrics-bind",
        envvar="STRANDLINE_METRICS_BIND",
        metavar="HOST:PORT",
        help="Address of Prometheus metrics by HTTP.",
    ),
]
LogForm = Annotated[
    str, typer.Option("--log-format", envvar="STRANDLINE_LOG_FORMAT", help="auto, text or json; auto: json in files.")
]
LogLeast = Annotated[
    str, typer.Option("--log-level", envvar="STRANDLINE_LOG_LEVEL", help="Lowest level: debug, info, warning or error.")
]
Insecure = Annotated[
    bool, typer.Option("--insecure", envvar="STRANDLINE_INSECURE", help="Serve beyond loopback without TLS.")
]
Results = Annotated[
    str | None,
    typer.Option(
        "--results",
        metavar="DIR|URI",
        help="Where runs (SubmitRun) write: files, or the warehouse of tables. Default: strandline-results.",
    ),
]
QueueLength = Annotated[
    int, typer.Option("--queue-length", min=1, help="Number of queries that may wait for the one that is computed.")
]
Warm = Annotated[
    bool, typer.Option("--warm/--no-warm", help="Open an input of minutes, and make its report, before the first call.")
]
PageRows = Annotated[
    int, typer.Option("--page-rows", min=1, max=10_000, help="Rows of a response to a request without page_size.")
]
Poll = Annotated[
    Duration, duration_option("--poll", help="How often watched inputs are checked for new files.", least="100ms")
]
RulesOf = Annotated[
    str,
    typer.Option(
        "--rules-of",
        envvar="STRANDLINE_RULES_OF",
        metavar="HOST:PORT[,...]",
        help="Cluster whose rules (strandline acl) say which clients may ask; needs TLS.",
    ),
]
TokenIssuers = Annotated[
    str,
    typer.Option(
        "--token-issuers",
        envvar="STRANDLINE_TOKEN_ISSUERS",
        metavar="FILE",
        help="Issuers whose tokens clients may show instead of a certificate, YAML; needs TLS.",
    ),
]
Reflection = Annotated[bool, typer.Option("--reflection/--no-reflection", help="Serve gRPC reflection.")]


def serve(
    inputs: Inputs,
    bind: Bind = "127.0.0.1:0",
    health_bind: HealthBind = "",
    metrics_bind: MetricsBind = "",
    metrics_tls: MetricsTls = False,
    log_format: LogForm = "auto",
    log_level: LogLeast = "info",
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    tls_ca: TlsCa = "",
    insecure: Insecure = False,
    rules_of: RulesOf = "",
    token_issuers: TokenIssuers = "",
    results: Results = None,
    kind: FormatOption = ResultFormat.PARQUET,
    catalog: Catalog = None,
    namespace: Namespace = None,
    queue_length: QueueLength = 8,
    page_rows: PageRows = 1_000,
    warm: Warm = True,
    poll: Poll = read_duration("2s"),
    reflection: Reflection = True,
    memory: Memory = DEFAULT_MEMORY,
) -> None:
    """Serve statistics of exports by gRPC until interrupted; grpcurl needs no proto files."""
    from strandline.runtime.log_form import LogFormat, LogLevel
    from strandline.runtime.process import run_service

    try:
        lines = LogFormat(log_format), LogLevel(log_level)
    except ValueError as error:
        raise typer.BadParameter(f"--log-format or --log-level: {error}") from None
    of_tls = {"--metrics-tls": metrics_tls, "--rules-of": rules_of, "--token-issuers": token_issuers}
    for name in (name for name, given in of_tls.items() if given and not tls_cert):
        raise typer.BadParameter(f"{name} needs --tls-cert, --tls-key and --tls-ca")
    endpoint = _endpoint_of(bind, tls_cert, tls_key, tls_ca, token_issuers, insecure=insecure)
    existing(inputs)
    destination = server_destination(kind, results, catalog, namespace)
    with spark_session(memory, progress=False, settings=destination.settings) as spark:
        from strandline_analytics.service.settings import AnalyticsSettings

        settings: AnalyticsSettings = AnalyticsSettings(
            inputs=tuple(inputs),
            destination=destination,
            bind=endpoint,
            health_bind=health_bind,
            metrics_bind=metrics_bind,
            metrics_tls=metrics_tls,
            tls_cert=tls_cert,
            tls_key=tls_key,
            tls_ca=tls_ca,
            insecure=insecure,
            rules_of=rules_of,
            token_issuers=token_issuers,
            reflection=reflection,
            queue_length=queue_length,
            page_rows=page_rows,
            warm=warm,
            poll_s=poll.s,
        )

        code = run_service(partial(_serve, settings, spark), log_format=lines[0], log_level=lines[1])
    raise typer.Exit(int(code))


def _endpoint_of(
    bind: str, tls_cert: str, tls_key: str, tls_ca: str, token_issuers: str, *, insecure: bool
) -> Endpoint:
    """The address to serve; errors in it or in TLS are reported before Spark starts, which takes a while."""
    from strandline.rpc.channels import parse_endpoint
    from strandline.rpc.server import open_tokens
    from strandline.rpc.tls import TlsWrong, open_tls
    from strandline.runtime.settings import is_loopback

    try:
        endpoint = parse_endpoint(bind)
    except ValueError as error:
        raise typer.BadParameter(f"--bind: {error}") from None
    if not tls_cert and not insecure and not is_loopback(endpoint.host):
        raise typer.BadParameter(
            f"--bind {bind} is not loopback and TLS is off; give --tls-cert, --tls-key and --tls-ca, or --insecure"
        )
    try:
        open_tokens(token_issuers, open_tls(tls_cert, tls_key, tls_ca))
    except TlsWrong as error:
        raise fail(CommandFailed(str(error), EXIT_UNREACHABLE)) from error
    return endpoint


async def _serve(settings: AnalyticsSettings, spark: Session, stop_asked: asyncio.Event) -> ExitCode:
    from strandline.rpc.channels import target
    from strandline.rpc.server import PortTaken
    from strandline.runtime.exit_codes import ExitCode, stop_process
    from strandline_analytics.service import process

    try:
        await process.serve(
            settings, spark, stop_asked, started=lambda bound: typer.echo(f"serving on {target(bound)}")
        )
    except PortTaken as error:
        stop_process(ExitCode.PORT_TAKEN, str(error))
    return ExitCode.CLEAN


def server_destination(
    kind: ResultFormat, results: str | None, catalog: str | None, namespace: str | None
) -> Destination:
    """The destination of runs, checked before Spark starts.

    Args:
        kind: `--format`.
        results: `--results`; None for the default, if there is one.
        catalog: `--catalog`.
        namespace: `--namespace`.

    Raises:
        typer.BadParameter: options that do not go together.
        typer.Exit: there is no runtime of the format for this PySpark.
    """
    check_installed()
    is_given = is_submitted()
    # A default would be refused if the session's catalog determines where tables are.
    out = results if results is not None or (kind.is_table and is_given) else RESULTS
    if out is not None and "://" not in out:
        out = str(Path(out).absolute())
    return destination_of(kind, out=out, catalog=catalog, namespace=namespace, is_given=is_given, option="--results")
