"""The pairs of PySpark and table format that work, and the packages that a session of ours takes from Maven.

A runtime of a format is made for one minor version of Spark. The pairs are data, and docs/ANALYTICS.md has them as a
table that a test compares; ``make test-with WHAT=formats`` tests them.

Invariant: a session of ours never loads a runtime into a PySpark other than that of its pair.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import pyspark

from strandline_analytics.tables import ResultFormat

_OF_SPARK = (
    "com.fasterxml.jackson.core", "com.fasterxml.jackson.datatype", "com.github.luben", "com.google.code.findbugs",
    "commons-logging", "commons-pool", "io.airlift", "javax.annotation", "org.apache.hadoop",
    "org.apache.logging.log4j", "org.apache.parquet", "org.roaringbitmap", "org.scala-lang", "org.slf4j",
    "org.xerial.snappy",
)  # fmt: skip
"""Groups that Delta's runtime names but PySpark already has, such as Hadoop's 50 MB: they are not fetched."""


class NoRuntime(Exception):
    """No runtime of a format is known for this PySpark, or the session has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """A pair of PySpark and table format that works."""

    format: ResultFormat
    version: str
    """The version of the format."""
    pyspark: str
    """The version that `make test-with WHAT=formats` uses; the pair holds for its whole minor version."""
    package: str
    """The name of the package for `spark.jars.packages` and `--packages`."""

    @property
    def minor(self) -> tuple[int, int]:
        """The minor version of Spark that the runtime is made for."""
        return _minor(self.pyspark)

    @property
    def shown(self) -> str:
        """The packages, for messages."""
        return f"{self.format.value} {self.version} with PySpark {'.'.join(map(str, self.minor))}"


RUNTIMES = (
    Runtime(
        format=ResultFormat.ICEBERG,
        version="1.12.0",
        pyspark="4.1.4",
        package="org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    ),
    Runtime(
        format=ResultFormat.DELTA,
        version="4.4.0",
        pyspark="4.1.4",
        package="io.delta:delta-spark_4.1_2.13:4.4.0",
    ),
    Runtime(
        format=ResultFormat.DELTA,
        version="4.4.0",
        pyspark="4.2.1",
        package="io.delta:delta-spark_4.2_2.13:4.4.0",
    ),
)
"""The pairs with which `make test-with WHAT=formats` has passed."""


def runtime_for(kind: ResultFormat, *, version: str = pyspark.__version__) -> Runtime:
    """The runtime of a format for a PySpark.

    Args:
        kind: a format of tables.
        version: the version that PySpark reports.

    Raises:
        NoRuntime: there is no runtime; the message names the pairs that work.
    """
    for runtime in RUNTIMES:
        if runtime.format is kind and runtime.minor == _minor(version):
            return runtime
    raise NoRuntime(
        f"--format {kind.value}: no runtime for PySpark {version} is known; these pairs work: {pairs()}. Install one "
        "of these PySparks, or use --format parquet"
    )


def pairs() -> str:
    """The pairs that work, for messages."""
    return ", ".join(runtime.shown for runtime in RUNTIMES)


def pairs_table() -> str:
    """The pairs that work, as Markdown."""
    rows = [f"| `{one.format.value}` | {one.version} | {one.pyspark} | `{one.package}` |" for one in RUNTIMES]
    return "\n".join(["| `--format` | version | PySpark | package |", "|---|---|---|---|", *rows])


def settings(runtime: Runtime, *, catalog: str, warehouse: str) -> dict[str, str]:
    """The settings that a session of ours needs to write tables of a format.

    Args:
        catalog: the name of Iceberg's catalog; Delta's tables are named by their places.
        warehouse: a directory or URI, as Hadoop names it.
    """
    own = {"spark.jars.packages": runtime.package}
    if runtime.format is ResultFormat.DELTA:
        return own | {
            "spark.jars.excludes": ",".join(f"{group}:*" for group in _OF_SPARK),
            # The number of tasks that read a table's state; the default of 50 is for tables of millions of files.
            "spark.databricks.delta.snapshotPartitions": "2",
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        }
    return own | {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        f"spark.sql.catalog.{catalog}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{catalog}.type": "hadoop",
        f"spark.sql.catalog.{catalog}.warehouse": warehouse,
    }


def not_started(settings: Mapping[str, str], error: Exception) -> NoRuntime | None:
    """The reason why a session of ours did not start; None if no runtime was requested."""
    package = settings.get("spark.jars.packages")
    if package is None or "JAVA_GATEWAY_EXITED" not in str(error):
        return None
    return NoRuntime(
        f"Spark did not start with {package}: above are its own words. It takes the package from Maven, by the "
        "settings of spark.jars.ivySettings in spark-defaults.conf if there are any, and needs Java 17 or newer"
    )


def _minor(version: str) -> tuple[int, int]:
    major, minor = re.findall(r"\d+", version)[:2]
    return int(major), int(minor)
