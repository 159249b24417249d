"""The analytics on a standalone Spark cluster, with export and results in an object store."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.fs as arrow_fs
import pyarrow.parquet as pq
import pyspark
import pytest
from maven_jars import JarsAbsent, fetched
from spark_cluster import QUICK, SparkCluster
from tests.export.object_store import BUCKET, CREDENTIALS, ObjectStore
from typer.testing import CliRunner, Result

from strandline.cli.app import app
from strandline_analytics.commands import submit

# Six JVMs start, on a machine that has other work.
pytestmark = pytest.mark.timeout(600)

HERE = Path(__file__).parents[1]
STATS = ("s01", "s08", "s10")
_SUBMIT_S = 400


@pytest.fixture
def s3a() -> Path:
    """The jars that Spark needs to read `s3a:`."""
    try:
        return fetched(HERE / "s3a" / "pom.xml")
    except JarsAbsent as absent:
        pytest.skip(f"no hadoop-aws: {absent}")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """A running object store, and its credentials in the environment."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with ObjectStore() as running:
        yield running


def settings(store: ObjectStore, classes: Path) -> dict[str, str]:
    """What the user of a cluster sets: where the store is, small executors, and parts for both of them."""
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraClassPath": f"{classes}/*",
        "spark.driver.extraJavaOptions": QUICK,
        "spark.driver.host": "127.0.0.1",
        "spark.executor.cores": "1",
        "spark.executor.extraClassPath": f"{classes}/*",
        "spark.executor.extraJavaOptions": QUICK,
        "spark.executor.memory": "512m",
        "spark.hadoop.fs.s3a.access.key": CREDENTIALS["AWS_ACCESS_KEY_ID"],
        "spark.hadoop.fs.s3a.endpoint": f"http://127.0.0.1:{store.port}",
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.secret.key": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }


def submitted(master: str, given: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command on a cluster, by the spark-submit that comes with pyspark."""
    spark_submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    conf = [word for name, value in given.items() for word in ("--conf", f"{name}={value}")]
    command = [str(spark_submit), "--master", master, "--driver-memory", "512m", *conf, submit.__file__, *words]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment.pop("PYSPARK_GATEWAY_PORT", None)
    return subprocess.run(command, env=environment, timeout=_SUBMIT_S, capture_output=True, text=True, check=False)


def rows(files: arrow_fs.FileSystem, root: str) -> dict[str, list[dict[str, Any]]]:
    """The rows of each statistic below a folder of results."""
    found = {}
    for stat in STATS:
        folder = arrow_fs.FileSelector(f"{root}/results/stat={stat}", recursive=True)
        (path,) = (one.path for one in files.get_file_info(folder) if one.path.endswith(".parquet"))
        found[stat] = pq.ParquetFile(files.open_input_file(path)).read().to_pylist()
    return found


def test_the_page_names_the_jar_of_the_installed_spark() -> None:
    """The command that the page prints has the version of Hadoop that PySpark brings, and so have the tests' jars."""
    (client,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    version = client.stem.removeprefix("hadoop-client-api-")
    page = (HERE.parents[1] / "docs" / "ANALYTICS.md").read_text()

    assert re.findall(r"hadoop-aws:([\d.]+)", page) == [version]
    assert re.findall(r"<hadoop>(.*)</hadoop>", (HERE / "s3a" / "pom.xml").read_text()) == [version]


def test_a_cluster_writes_the_rows_of_an_embedded_run(
    analytics: Callable[..., Result], s3a: Path, store: ObjectStore, tmp_path: Path
) -> None:
    """Two workers read an export from the store and write there what `local[2]` writes into a directory."""
    export, own = tmp_path / "export", tmp_path / "own"
    assert CliRunner().invoke(app, ["sim", "replay", "7", "--export", str(export)]).exit_code == 0
    reported = analytics("run", "--input", export, "--out", own, "--stat", ",".join(STATS))
    assert reported.exit_code == 0, reported.output
    objects = arrow_fs.S3FileSystem(endpoint_override=f"127.0.0.1:{store.port}", scheme="http", region="us-east-1")
    arrow_fs.copy_files(str(export), f"{BUCKET}/export", destination_filesystem=objects)
    shutil.rmtree(export)

    with SparkCluster(tmp_path, workers=2) as cluster:
        where = ("--input", f"s3a://{BUCKET}/export", "--out", f"s3a://{BUCKET}/cluster")
        done = submitted(cluster.master, settings(store, s3a), "run", *where, "--stat", ",".join(STATS))
        executors = cluster.executors()

    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == f"s3a://{BUCKET}/cluster/results: 1 hours, 3 statistics, 3 rows"
    assert executors == [1, 1]
    assert rows(objects, f"{BUCKET}/cluster") == rows(arrow_fs.LocalFileSystem(), str(own))
