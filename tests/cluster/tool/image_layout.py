"""The built images as one OCI layout, in which they share their layers.

Archives of single images would each bring the base along, to the disk and to the node.
"""

import contextlib
import hashlib
import json
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import asdict, dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from cluster.tool import layout
from cluster.tool.errors import CommandFailed

_BLOBS = layout.IMAGES / "blobs" / "sha256"
_IMPORTED = layout.CONTAINERD_ROOT / "imported.json"
_OCI = "application/vnd.oci.image"


@dataclass(frozen=True, slots=True)
class _Image:
    """`blobs` are the digests of all it consists of, `manifest` the first of them."""

    name: str
    sources: str
    manifest: str
    manifest_bytes: int
    blobs: list[str]


def sources_of(image: str) -> str | None:
    """What it was built from; None if it was not."""
    found = _find(image)
    return found.sources if found else None


def manifest_of(image: str) -> str | None:
    """The digest that names exactly this content; None if it was not built."""
    found = _find(image)
    return found.manifest if found else None


def configuration(name: str) -> dict[str, Any]:
    """What it says of itself: labels, user, entry point."""
    found = _find(name)
    assert found is not None, f"{name} was not built"
    return dict(json.loads(_path(found.blobs[1]).read_bytes())["config"])


def layers(name: str) -> list[Path]:
    """Their archives, the lowest first."""
    found = _find(name)
    assert found is not None, f"{name} was not built"
    return [_path(digest) for digest in found.blobs[2:]]


def add(name: str, archive: Path, *, sources: str) -> None:
    """Takes an image in, in place of an earlier one of this name."""
    _BLOBS.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as content:
        described = json.loads(_read(content, "manifest.json"))[0]
        configuration = _read(content, described["Config"])
        digests = json.loads(configuration)["rootfs"]["diff_ids"]
        for digest, member in zip(digests, described["Layers"], strict=True):
            if not _path(digest).exists():
                _store_layer(content, member, _path(digest))
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{_OCI}.manifest.v1+json",
        "config": _described("config.v1+json", _store(configuration)),
        "layers": [_described("layer.v1.tar", digest) for digest in digests],
    }
    encoded = json.dumps(manifest).encode()
    stored = _store(encoded)
    image = _Image(
        name=name,
        sources=sources,
        manifest=stored,
        manifest_bytes=len(encoded),
        blobs=[stored, manifest["config"]["digest"], *digests],
    )
    _record(name).write_text(json.dumps(asdict(image)))


def tag(name: str, another: str) -> None:
    """Gives an image one more name."""
    found = _find(name)
    assert found is not None, f"{name} was not built"
    _record(another).write_text(json.dumps(asdict(replace(found, name=another))))


def prune() -> None:
    """Removes what no image consists of any more."""
    used = {_path(digest) for image in _all() for digest in image.blobs}
    for path in _BLOBS.glob("*"):
        if path not in used:
            path.unlink()


def load() -> None:
    """Brings to the running node what it does not have, layer by layer."""
    imported: dict[str, list[str]] = {}
    with contextlib.suppress(OSError, ValueError):
        imported = json.loads(_IMPORTED.read_text())
    images = [image for image in _all() if imported.get(image.name) != image.blobs]
    if not images:
        return
    there = {digest for blobs in imported.values() for digest in blobs}
    wanted = dict.fromkeys(digest for image in images for digest in image.blobs)
    with tempfile.TemporaryFile() as errors:
        importing = subprocess.Popen(
            ["ctr", "--address", layout.CONTAINERD_SOCKET, "-n", "k8s.io", "images", "import", "-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
        assert importing.stdin is not None
        with contextlib.suppress(BrokenPipeError), importing.stdin as pipe:
            _write(pipe, images, [digest for digest in wanted if digest not in there])
        if importing.wait() != 0:
            errors.seek(0)
            raise CommandFailed(f"ctr can't import the images: {errors.read().decode()[-1000:]}")
    _IMPORTED.write_text(json.dumps(imported | {image.name: image.blobs for image in images}))


def _write(pipe: IO[bytes], images: list[_Image], digests: list[str]) -> None:
    manifests = [
        {
            "mediaType": f"{_OCI}.manifest.v1+json",
            "digest": image.manifest,
            "size": image.manifest_bytes,
            "annotations": {"io.containerd.image.name": image.name},
        }
        for image in images
    ]
    with tarfile.open(fileobj=pipe, mode="w|") as stream:
        _add_text(stream, "oci-layout", {"imageLayoutVersion": "1.0.0"})
        for digest in digests:
            stream.add(_path(digest), f"blobs/sha256/{_path(digest).name}")
        _add_text(stream, "index.json", {"schemaVersion": 2, "manifests": manifests})


def _add_text(stream: tarfile.TarFile, name: str, content: object) -> None:
    encoded = json.dumps(content).encode()
    member = tarfile.TarInfo(name)
    member.size = len(encoded)
    stream.addfile(member, BytesIO(encoded))


def _all() -> list[_Image]:
    return [_Image(**json.loads(path.read_text())) for path in sorted(layout.IMAGES.glob("*.json"))]


def _find(name: str) -> _Image | None:
    for image in _all():
        if image.name == name and all(_path(digest).exists() for digest in image.blobs):
            return image
    return None


def _record(name: str) -> Path:
    return layout.IMAGES / f"{name.replace('/', '_').replace(':', '_')}.json"


def _path(digest: str) -> Path:
    return _BLOBS / digest.removeprefix("sha256:")


def _read(content: tarfile.TarFile, member: str) -> bytes:
    with _open(content, member) as source:
        return source.read()


def _open(content: tarfile.TarFile, member: str) -> IO[bytes]:
    source = content.extractfile(member)
    assert source is not None
    return source


def _store(content: bytes) -> str:
    digest = hashlib.sha256(content).hexdigest()
    (_BLOBS / digest).write_bytes(content)
    return f"sha256:{digest}"


def _store_layer(content: tarfile.TarFile, member: str, target: Path) -> None:
    part = target.with_suffix(".part")
    with _open(content, member) as source, part.open("wb") as sink:
        shutil.copyfileobj(source, sink, 1 << 20)
    part.rename(target)


def _described(kind: str, digest: str) -> dict[str, object]:
    size = _path(digest).stat().st_size
    return {"mediaType": f"{_OCI}.{kind}", "digest": digest, "size": size}
