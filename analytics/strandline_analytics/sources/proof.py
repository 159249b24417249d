"""Whether files still hold what their manifests prove: by the hash of their bytes, which Spark's tasks compute.

No other question compares hashes, for it would read every byte of every file a second time: a size shows files that
are not whole, and only a change that keeps the size needs this.

Invariant: a file without a manifest is neither right nor wrong here.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from strandline_analytics.sources.catalog import ExportedFile
from strandline_analytics.sources.places import literal
from strandline_analytics.sources.trouble import DamagedFile, InputTrouble


def verify(spark: SparkSession, files: Sequence[ExportedFile]) -> int:
    """Compare files with the hashes of their manifests, and give how many were compared.

    Raises:
        DamagedFile: it names the first file that was changed, and says how many were.
        InputTrouble: Spark read other files than it was asked to; what these hold is not known.
    """
    proven = {_plain(file.uri): file for file in files if file.manifest is not None}
    if not proven:
        return 0
    rows = spark.read.format("binaryFile").load([literal(file.uri) for file in proven.values()])
    hashes = {_plain(row["path"]): row["hash"] for row in _hashed(rows).collect()}
    if missed := [file for name, file in proven.items() if name not in hashes]:
        raise InputTrouble(
            f"{missed[0].shown} was not compared with its manifest, as {len(missed)} of {len(proven)} files were not: "
            "Spark gave them other names. Nothing is known to be wrong with them; give the export by its plain path"
        )
    changed = [
        file for name, file in proven.items() if file.manifest is not None and hashes[name] != file.manifest.sha256
    ]
    if changed:
        raise DamagedFile(
            f"{changed[0].shown} has other bytes than those that its manifest proves, of the same length, as "
            f"{len(changed)} of {len(proven)} files have. Rule: a file is never changed after it was written. Copy it "
            "again from its origin, or take it away with its manifest; its hour then counts as incomplete"
        )
    return len(proven)


def _hashed(rows: DataFrame) -> DataFrame:
    return rows.select("path", F.sha2("content", 256).alias("hash"))


def _plain(uri: str) -> str:
    """Hadoop writes the URI of a local file with one slash, Python with three."""
    return uri.replace("file:///", "file:/", 1)
