"""Writes a container image that holds one static program to stdout, as `docker save` would: no engine needed."""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path


def packed(files: dict[str, bytes]) -> bytes:
    """An archive of executable files."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755
            archive.addfile(entry, io.BytesIO(data))
    return content.getvalue()


def image(reference: str, program: Path) -> bytes:
    """The image's archive: one layer, its configuration and the manifest that names both."""
    layer = packed({program.name: program.read_bytes()})
    configuration = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": [f"/{program.name}"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [reference], "Layers": ["layer.tar"]}]
    return packed(
        {
            "config.json": json.dumps(configuration).encode(),
            "layer.tar": layer,
            "manifest.json": json.dumps(manifest).encode(),
        }
    )


if __name__ == "__main__":
    sys.stdout.buffer.write(image(sys.argv[1], Path(sys.argv[2])))
