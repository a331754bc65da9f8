"""Pack a folder as an image archive of one layer, for `ctr images import`, `docker load` and kind.

`mkimage.py NAME:TAG OUT.tar FOLDER CONFIG_JSON`, with the `config` of an OCI image as JSON. The
same files give the same image: owners and times are left out.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import sys
import tarfile
from pathlib import Path
from typing import Any

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def main() -> None:
    """Write the archive that the command line asks for."""
    name, archive, folder, config = sys.argv[1:5]
    write_image(name, Path(archive), Path(folder), json.loads(config))


def write_image(name: str, archive: Path, folder: Path, config: dict[str, Any]) -> None:
    """Write `folder` as the only layer of the image `name` (with its tag) into `archive`."""
    layer = archive.with_suffix(".layer")
    with tarfile.open(layer, "w", format=tarfile.GNU_FORMAT) as tar:
        for entry in sorted(folder.iterdir()):
            tar.add(entry, entry.name, filter=_without_owner)
    with layer.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    description = {
        "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    described = json.dumps(description).encode()
    described_as = f"{hashlib.sha256(described).hexdigest()}.json"
    inside = f"{digest}/layer.tar"
    manifest = [{"Config": described_as, "RepoTags": [name], "Layers": [inside]}]
    with tarfile.open(archive, "w") as tar:
        _add(tar, described_as, described)
        _add(tar, "manifest.json", json.dumps(manifest).encode())
        tar.add(layer, inside)
    layer.unlink()


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = 0
    return entry


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))


if __name__ == "__main__":
    main()
