"""How Hadoop names the directory or URI that tables of a session of our own lie in."""

from __future__ import annotations

from pathlib import Path


def warehouse_of(out: str) -> str:
    """An absolute URI, without a slash at its end.

    Args:
        out: a path of this machine, or a URI; `s3:` is written by Hadoop's `s3a:`.
    """
    if "://" in out:
        return out.replace("s3://", "s3a://", 1).rstrip("/")
    return f"file://{Path(out.removeprefix('file:')).absolute()}"
