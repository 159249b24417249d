"""Sets up Spark sessions of ours; no other module makes one.

Invariant: times are UTC, integers that overflow are errors (ANSI); an embedded run opens no port and needs no cluster
and no network, and in a session that others prepared none of their other settings is changed.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession

from strandline_analytics.jvm import (
    analyzed_plan,
    gateway_of,
    has_jvm,
    keep_objects,
    query_of,
    release_together,
    remember_names,
)
from strandline_analytics.jvm_start import jvm_options, started, without_greetings
from strandline_analytics.silver.kept import KEPT_AS_ROWS, tables_are_rows
from strandline_analytics.sources.places import bytes_here

Session = SparkSession
"""The type for callers that must not import Spark."""

_MEANING = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
}
"""Settings that answers depend on, so they apply wherever Spark runs."""
_WISHES = {
    "spark.sql.adaptive.enabled": "true",
    # Results of an hour replace the results of that hour and no other.
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    "spark.sql.parquet.compression.codec": "zstd",
    # By default times are INT96, which has no statistics to skip files by, and which other tools have dropped.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Searching for the best compression of each column costs more than all the statistics that read it.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    # Lists of a group's values are gathered for thousands of groups; by default they are sorted from 128 on.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "10000",
    # A history is small; the default of 200 would be 200 empty tasks.
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}
"""Settings that apply unless the user has set them: by `--conf`, in spark-defaults, or in the joined session.

All of them can be set while it runs."""
_EMBEDDED = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Else each column that we write down is reported with the line that did: five calls of the JVM, and a failed
    # import.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # The same in the JVM, which writes down its stack for each column, and sends it to each task with the column.
    "spark.sql.dataFrameQueryContext.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Spark keeps the plans of a thousand queries, and their tasks, for a page that cannot be opened here. Anyone who
    # looks at running jobs needs few.
    "spark.sql.ui.retainedExecutions": "10",
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "1000",
    # Whatever sorts or adds up takes memory by pages. The default, 64 MiB with a heap of 4 GiB, is cleared and kept for
    # tables of a thousand rows, hundreds of times: a third of all memory, and most of the time to collect it.
    "spark.buffer.pageSize": "4m",
}
"""Settings only for an embedded Spark: a cluster has its own pages and memory."""
_NOT_WORTH_IT = (
    "BooleanSimplification", "CollapseWindow", "ConstantFolding", "ConstantPropagation", "DecimalAggregates",
    "EliminateOuterJoin", "EliminateSorts", "FoldablePropagation", "InferFiltersFromConstraints",
    "InferFiltersFromGenerate", "LikeSimplification", "LimitPushDown", "NullDownPropagation", "NullPropagation",
    "OptimizeCsvJsonExprs", "OptimizeIn", "OptimizeOneRowRelationSubquery", "OptimizeUpdateFields",
    "PropagateEmptyRelation", "PruneFilters", "PushDownLeftSemiAntiJoin", "PushProjectionThroughUnion",
    "RemoveNoopOperators", "RemoveRedundantAliases", "ReorderJoin", "SimplifyBinaryComparison", "SimplifyCasts",
    "SimplifyConditionals", "SimplifyExtractValueOps", "TransposeWindow", "UnwrapCastInBinaryComparison",
)  # fmt: skip
"""Rules of Spark's optimizer, all of which Spark lets a session exclude: none changes what a query answers."""
SMALL = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # All rows lie in one part, so a join needs neither a shuffle nor the job that a broadcast is.
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.optimizer.disableHints": "true",
    # Spark takes the product of two tables for the size of a join, and splits again what is above 128 MiB by that.
    "spark.sql.maxSinglePartitionBytes": "8191p",
    "spark.sql.sources.fileCompressionFactor": "0.000001",
    KEPT_AS_ROWS: "true",
    # Each of these searches every plan, or proves something of it, at a higher cost than it can save here.
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.subexpressionElimination.enabled": "false",
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.sql.analyzer.failAmbiguousSelfJoin": "false",
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
    "spark.sql.optimizer.nestedSchemaPruning.enabled": "false",
    "spark.sql.optimizer.expression.nestedPruning.enabled": "false",
    "spark.sql.optimizer.serializer.nestedSchemaPruning.enabled": "false",
    "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
    # The description of each plan, for a page that is not opened, is written once and not twice.
    "spark.sql.ui.explainMode": "simple",
    # These rules cost more than they may save: they examine every expression of a query several times, and
    # a query runs once, over a few thousand rows.
    "spark.sql.optimizer.excludedRules": ",".join(
        f"org.apache.spark.sql.catalyst.optimizer.{rule}" for rule in _NOT_WORTH_IT
    ),
}
"""For an export of minutes: nothing is split, a query is one job, and no code is compiled, because it runs once."""
SMALL_BYTES = 1 << 20
"""The maximum size of a small input, bytes of files: some forty thousand rows."""
_LARGER = {KEPT_AS_ROWS: "false"}
MIDDLE = {"spark.sql.adaptive.enabled": "false"} | _LARGER
"""For an export of days: sizes of the files, known beforehand, are as good as what a query learns while running."""
HOURS = MIDDLE | {"spark.sql.shuffle.partitions": "4"}
"""For an export of hours: half as many parts, because each costs as much as thousands of rows."""
HOURS_BYTES = 64 << 20
"""The maximum size for `HOURS`, bytes of files: some two million rows."""
MIDDLE_BYTES = 1 << 30
"""The maximum size for `MIDDLE`, bytes of files: some fifty million rows."""
PART_BYTES = 64 << 20
"""Larger input gets one part of a shuffle per this many bytes of files, some three million rows."""
MOST_PARTS = 8_192
"""The maximum number of parts, that of half a TiB: more cost the driver and the network more than they save a task."""
_SIZES = ((SMALL_BYTES, SMALL), (HOURS_BYTES, HOURS), (MIDDLE_BYTES, MIDDLE))
_JVM = (
    "-XX:+UseParallelGC",
    # What a command does runs some thousand times, and rows by the million: only for the latter it pays to compile code
    # a second time, for speed. The defaults, a fifteenth of these, spend most of a minute of the processor on it.
    "-XX:Tier4InvocationThreshold=70000",
    "-XX:Tier4MinInvocationThreshold=10000",
    "-XX:Tier4CompileThreshold=200000",
    "-XX:Tier4BackEdgeThreshold=800000",
    # Spark's classes need so much from the start; by default all of the heap is collected four times on the way there.
    "-XX:MetaspaceSize=256m",
    # The classes are those of the installed PySpark, whose checksums the installer compared. To verify the bytecode of
    # thousands of them takes a tenth of the processor time of a command over little input.
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-XX:-BytecodeVerificationRemote",
)
_JVM_FOR_LITTLE = (
    # For small input nothing runs often enough to be compiled a second time, for speed.
    "-XX:TieredStopAtLevel=1",
    # With one compiler the cache for compiled code is a fifth as large, and is searched for what may go.
    "-XX:ReservedCodeCacheSize=240m",
)
"""Options for small input: they save a quarter of the processor time of a report over an export of minutes."""
_QUIET = Path(__file__).with_name("log4j2.properties")

_LOG_LEVEL = "spark.log.level"
_OF_CATALOGS = re.compile(r"spark\.sql\.catalog\.(?!spark_catalog\b)")
"""Settings of catalogs; those of Spark's own one are known to Spark, and some of them cannot be set in a session."""
_NOTHING: Mapping[str, str] = MappingProxyType({})
_ADAPTIVE = "spark.sql.adaptive.enabled"

_FITTED: dict[tuple[str, int], SparkSession] = {}
"""Sessions for a size of input, by their application and the maximum size in bytes."""
_GIVEN: dict[str, frozenset[str]] = {}
"""Settings that others had made in a session before it was opened here, by application."""


def open_session(
    app: str = "strandline-analytics",
    *,
    master: str | None = None,
    memory: str = "2g",
    jvm: Sequence[str] | None = None,
    little: bool = False,
    settings: Mapping[str, str] = _NOTHING,
    meanwhile: Callable[[], object] = lambda: None,
) -> SparkSession:
    """Open a session of our own, or join the one that `spark-submit` prepared.

    In a session that others prepared, their settings hold (`--conf`, spark-defaults, the session's own), as do its name
    and its pages; ours apply where the user has set none. Only settings that answers depend on are always ours: times
    in UTC, and integers that overflow are errors.

    Args:
        app: the name that Spark's own pages show, of a session of our own.
        master: ``local[N]`` for an embedded run; None leaves the choice to `spark-submit`.
        memory: the driver's memory, in Spark's syntax; it matters only if this process starts the JVM.
        jvm: further options of that JVM; None for those of an archive of classes, if there is one (`class_archive`).
        little: the session ends after questions about small input (`SMALL_BYTES`); the JVM is set up for that.
        settings: further ones of a session of our own: those that must be there before it starts.
        meanwhile: called once while the JVM starts, if this process starts one: work that has to be done anyway.
    """
    if master is None:
        session = _joined()
    else:
        options = (*(_JVM_FOR_LITTLE if little else ()), *(jvm_options() if jvm is None else jvm))
        session = _embedded(app, master, memory, options, settings, meanwhile)
        if little:
            keep_objects(session)
        else:
            release_together(session)
    remember_names(session)
    return session


def _joined() -> SparkSession:
    session = SparkSession.builder.getOrCreate()
    given = frozenset(_set_in(session))
    _GIVEN[_application(session)] = given
    wishes = {name: value for name, value in _WISHES.items() if name not in given}
    for name, value in (wishes | _MEANING).items():
        session.conf.set(name, value)
    if _LOG_LEVEL not in given and has_jvm(session):
        session.sparkContext.setLogLevel("ERROR")
    return session


def _embedded(
    app: str,
    master: str,
    memory: str,
    jvm: Sequence[str],
    more: Mapping[str, str],
    meanwhile: Callable[[], object],
) -> SparkSession:
    # Workers of an embedded run are this very Python; Spark's own default is whatever `python3` is on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Otherwise Spark looks up an address by the machine's name, and warns if it finds loopback.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    options = (*_JVM, *jvm, f"-Dlog4j2.configurationFile={_QUIET.as_uri()}")
    settings = {
        "spark.app.name": app,
        "spark.master": master,
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": " ".join(options),
    }
    settings |= _EMBEDDED | _WISHES | _MEANING | dict(more)
    with without_greetings(), started(settings, meanwhile) as process:
        session = SparkSession.builder.config(map={**settings}).getOrCreate()
    if process is not None:
        gateway_of(session).proc = process
    _GIVEN[_application(session)] = frozenset()
    session.sparkContext.setLogLevel("ERROR")
    return session


def is_little(inputs: Sequence[str]) -> bool:
    """Whether inputs are known, before there is a session, to be of the smallest size."""
    size_bytes = bytes_here(inputs) if inputs else None
    return size_bytes is not None and size_bytes <= SMALL_BYTES


def session_for(spark: SparkSession, size_bytes: int) -> SparkSession:
    """The session for input of this size: for little, planning and compiling cost most; for much, parts must be small.

    It shares everything with the one that is given but settings, so what runs beside it keeps its own. It has the
    settings of the one that is given as they are now, but for those of its size; and of these, what others had set
    before the session was opened (`--conf` of `spark-submit`, spark-defaults) stays as they set it.

    Above `MIDDLE_BYTES` a shuffle has a part for every `PART_BYTES` of files, rounded down to a power of two: at least
    16, for so many are in 1 GiB, and at most `MOST_PARTS`. A query that learns under way that parts are small merges
    them, and none is ever split.

    A session of Spark Connect is used as it is: it cannot make others that share its tables.

    On a cluster tables are never kept as rows, for those are lost with the executor that holds them.
    """
    most, wanted = _wanted(size_bytes)
    if not has_jvm(spark):
        return spark
    if not _is_one_process(spark):
        wanted |= _LARGER
    application = _application(spark)
    if (application, most) not in _FITTED:
        _FITTED[application, most] = spark.newSession()
    fitted = _FITTED[application, most]
    given = _GIVEN.setdefault(application, frozenset(_set_in(spark)))
    own = {name: value for name, value in wanted.items() if name not in given}
    _settle(fitted, _set_in(spark) | own, own)
    return fitted


def _settle(session: SparkSession, settings: Mapping[str, str], own: Collection[str]) -> None:
    """Give a new session the settings of another one; ``own`` are ours."""
    for setting, value in settings.items():
        # What is not Spark's own counts as not modifiable, also a catalog that was added while the session runs.
        if setting in own or _OF_CATALOGS.match(setting) or session.conf.isModifiable(setting):
            session.conf.set(setting, value)


def _wanted(size_bytes: int) -> tuple[int, dict[str, str]]:
    """The upper limit of a size in bytes, and the settings for it."""
    for most, wanted in _SIZES:
        if size_bytes <= most:
            return most, dict(wanted)
    parts = min(MOST_PARTS, 1 << (size_bytes // PART_BYTES).bit_length() - 1)
    return 2 * parts * PART_BYTES, {"spark.sql.shuffle.partitions": str(parts)} | _LARGER


def _is_one_process(spark: SparkSession) -> bool:
    """Whether the JVM of the driver also executes the queries."""
    return re.match(r"local(\[|$)", _master(spark)) is not None


def _master(spark: SparkSession) -> str:
    return str(spark.conf.get("spark.master"))


def _set_in(spark: SparkSession) -> dict[str, str]:
    """The settings of a session, made by anyone, that are not Spark's defaults."""
    return dict(spark.conf.getAll)


def carried_out_in(spark: SparkSession, query: DataFrame) -> DataFrame:
    """The same query, planned and executed with the settings of another session of its application."""
    if query.sparkSession is spark or not has_jvm(spark):
        return query
    return query_of(analyzed_plan(query), spark, like=query)


def planned_at_once(query: DataFrame) -> DataFrame:
    """The same query, planned as a whole before it is executed, with the other settings of its session.

    A query that adapts while it runs may merge parts of a shuffle, so the partitioning of a table that is kept of it is
    not known: Spark would shuffle the rows again for any grouping by which they are already partitioned.
    """
    spark = query.sparkSession
    if not has_jvm(spark) or spark.conf.get(_ADAPTIVE) == "false":
        return query
    planning = spark.newSession()
    _settle(planning, _set_in(spark) | {_ADAPTIVE: "false"}, [KEPT_AS_ROWS])
    return carried_out_in(planning, query)


def _application(spark: SparkSession) -> str:
    return str(spark.conf.get("spark.app.id"))


# ---- side_by_side
# Runs two queries at once: while one is planned, which takes one thread, the other is executed.
#
# Invariant: both have the job tags of the caller, and have ended when this returns or raises.

# ---- call_sites
# Gives all Spark jobs one name instead of a line of code, because single jobs are of no interest.
#
# For each step of each query Spark walks the stack of its thread to find the line that asked for it: over little input
# a twentieth of a report's time.
#
# Invariant: for larger input, whose jobs people look at, they are ascribed as usual.

_PROPERTIES = ("callSite.short", "callSite.long")


def ascribe_together(spark: SparkSession, name: str = "strandline") -> None:
    """Ascribe this thread's Spark jobs to ``name`` until it has collected an answer; threads inherit it."""
    if not tables_are_rows(spark):
        return
    context = spark.sparkContext
    for each in _PROPERTIES:
        context.setLocalProperty(each, name)


_First = TypeVar("_First")
_Second = TypeVar("_Second")


def side_by_side(
    spark: SparkSession, first: Callable[[], _First], second: Callable[[], _Second]
) -> tuple[_First, _Second]:
    """The results of both; ``second`` is called in its own thread. If both raise, the error is that of ``first``."""
    ascribe_together(spark)
    with ThreadPoolExecutor(1, thread_name_prefix="beside") as pool:
        beside = pool.submit(inheritable_thread_target(spark)(second))
        return first(), beside.result()
