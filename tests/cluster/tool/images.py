"""The images of the tests: built from this checkout and brought to the node, if something changed."""

import hashlib
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from cluster.tool import builder, image_layout, layout, machine, prometheus
from cluster.tool.command import run, say
from cluster.tool.node import PAUSE_IMAGE

_NAME = "llmqueue.test/{}:dev"
_BASE = _NAME.format("base")

# What the wheel and the images are made of; .dockerignore lets no more in.
_SOURCES = (
    *("lib", "operator", "worker", "cli", "examples", "requirements"),
    *("pyproject.toml", "README.md", "LICENSE", "Dockerfile", ".dockerignore"),
)
_TESTBED = ("tests/cluster/testbed.Dockerfile", "tests/cluster/testbed.txt")
_HANDLERS = "examples/handlers"

_SUITE = "bookworm"
_PACKAGES = "python3,python3-venv,ca-certificates"
_LEFT_OUT = [f"--dpkgopt=path-exclude=/usr/share/{each}/*" for each in ("doc", "man", "locale")]


def build() -> None:
    """Builds those whose sources changed."""
    layout.IMAGES.mkdir(parents=True, exist_ok=True)
    builder.drop_old_layers()
    _build_if_changed(PAUSE_IMAGE, _build_pause, _busybox_digest)
    for target in ("operator", "worker", "cli"):
        image = _NAME.format(target)
        _build_if_changed(image, partial(_build_target, target), _code_digest)
        if target != "cli":
            image_layout.tag(image, image.replace(":dev", ":next"))  # to upgrade to
    _build_if_changed(
        _NAME.format("testbed"), _build_testbed, partial(_digest_on_worker, *_TESTBED)
    )
    _build_if_changed(
        _NAME.format("handlers"), _build_handlers, partial(_digest_on_worker, _HANDLERS)
    )
    image_layout.prune()


def build_prometheus() -> None:
    """Its operator and the operator's reloader are in the same image, beside its own entry point."""
    layout.IMAGES.mkdir(parents=True, exist_ok=True)
    _build_if_changed(_NAME.format("prometheus"), _build_prometheus, _prometheus_digest)


def load() -> None:
    """Brings to the running node what it does not have in this state."""
    image_layout.load()


def _build_if_changed(
    image: str, build_image: Callable[[str], None], digest: Callable[[], str]
) -> None:
    sources = digest()
    if image_layout.sources_of(image) == sources:
        return
    say(f"Building the image {image}")
    build_image(image)
    if digest() != sources:
        sources = "changed during the build"  # nobody knows what is in it: the next run builds anew
    archive = layout.IMAGES / "export.tar"
    archive.unlink(missing_ok=True)
    builder.export(image, archive)
    image_layout.add(image, archive, sources=sources)
    archive.unlink()


def _build_pause(image: str) -> None:
    # A static busybox that sleeps: all a sandbox has to do.
    entrypoint = '["/busybox", "sleep", "2147483647"]'
    text = f"FROM scratch\nCOPY busybox /busybox\nENTRYPOINT {entrypoint}\n"
    builder.build_from(image, text, machine.busybox())


def _build_base() -> None:
    """In place of python:slim, which a machine without a way to an image registry can't have."""
    archive = layout.IMAGES / "base.tar"
    if not archive.exists():
        say(f"Building the base image from Debian's packages ({_SUITE})")
        part = layout.IMAGES / "base.part.tar"
        run(
            *("mmdebstrap", "--quiet", "--variant=essential", f"--include={_PACKAGES}"),
            *_LEFT_OUT,
            *(_SUITE, part),
        )
        part.rename(archive)
    if not builder.has(_BASE):
        builder.build_from(_BASE, "FROM scratch\nADD base.tar /\n", archive)


def _build_target(target: str, image: str) -> None:
    _build_base()
    arguments = ("--target", target, "--build-arg", f"BASE_IMAGE={_BASE}")
    builder.build(image, layout.CHECKOUT, layout.CHECKOUT / "Dockerfile", *arguments)


def _build_testbed(image: str) -> None:
    _build_on_worker(image, layout.CHECKOUT, layout.DEFINITIONS / "testbed.Dockerfile")


def _build_handlers(image: str) -> None:
    folder = layout.CHECKOUT / _HANDLERS
    _build_on_worker(image, folder, folder / "Dockerfile")


def _build_prometheus(image: str) -> None:
    programs = [layout.BIN / program for program in prometheus.PROGRAMS]
    names = " ".join(program.name for program in programs)
    entrypoint = '["/bin/prometheus"]'
    text = f"FROM scratch\nCOPY {names} /bin/\nUSER 65532:65532\nENTRYPOINT {entrypoint}\n"
    builder.build_from(image, text, *programs)


def _build_on_worker(image: str, context: Path, dockerfile: Path) -> None:
    worker = _NAME.format("worker")
    if not builder.has(worker):  # it went with the old layers, and need not be built anew itself
        _build_target("worker", worker)
    builder.build(image, context, dockerfile, "--build-arg", f"WORKER_IMAGE={worker}")


def _busybox_digest() -> str:
    return hashlib.sha256(machine.busybox().read_bytes()).hexdigest()


def _prometheus_digest() -> str:
    digests = [(layout.BIN / program).read_bytes() for program in prometheus.PROGRAMS]
    return hashlib.sha256(b"".join(digests)).hexdigest()


def _code_digest() -> str:
    return _digest(_SOURCES)


def _digest_on_worker(*sources: str) -> str:
    """With the very image it is built from."""
    return f"{_digest(sources)} {image_layout.manifest_of(_NAME.format('worker'))}"


def _digest(names: Iterable[str]) -> str:
    """Of the files as they are, committed or not: that is what the build copies."""
    digest = hashlib.sha256()
    for name in names:
        top = layout.CHECKOUT / name
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(layout.CHECKOUT)}\0".encode())
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
