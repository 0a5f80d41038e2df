"""buildah: builds images without a daemon and without a registry."""

import functools
import shutil
import sys
import tempfile
from pathlib import Path

from cluster.tool import layout
from cluster.tool.command import run
from cluster.tool.errors import CommandFailed

_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
# Folders of this machine, which pip's settings may name as well, are not there during a build.
_PIP_SETTINGS = (
    "index-url",
    "extra-index-url",
    "proxy",
    "trusted-host",
    "timeout",
    "default-timeout",
)
_LAYERS_AT_MOST = 300


def build(image: str, context: Path, dockerfile: Path, *arguments: str) -> None:
    """`arguments` are further ones of `buildah build`."""
    with tempfile.TemporaryDirectory() as name:
        _buildah(
            *("build", "--quiet", "--isolation", "chroot", "--layers", "--tag", image),
            *_machine_settings(Path(name)),
            *arguments,
            *("--file", dockerfile, context),
        )


def build_from(image: str, dockerfile: str, *files: Path) -> None:
    """From a Dockerfile's text, with these files beside it."""
    with tempfile.TemporaryDirectory(dir=layout.HOME) as name:
        context = Path(name)
        for file in files:
            shutil.copy(file, context / file.name)
        (context / "Dockerfile").write_text(dockerfile)
        build(image, context, context / "Dockerfile")


def has(image: str) -> bool:
    return image in _buildah("images", "--format", "{{.Name}}:{{.Tag}}").split()


def export(image: str, archive: Path) -> None:
    _buildah("push", "--quiet", image, f"docker-archive:{archive}:{image}")


def _machine_settings(folder: Path) -> list[str]:
    """This machine's way to the package index: from outside, so that no layer knows it."""
    settings: dict[str, str] = {}
    for line in run(sys.executable, "-m", "pip", "config", "list").splitlines():
        name, _, quoted = line.partition("=")
        section, _, key = name.rpartition(".")
        if key in _PIP_SETTINGS and (section == ":env:" or key not in settings):  # pip's order
            settings[key] = quoted.strip("'")
    arguments: list[str] = []
    if _CERTIFICATES.exists():
        settings["cert"] = str(_CERTIFICATES)
        arguments = ["--volume", f"{_CERTIFICATES}:{_CERTIFICATES}:ro"]
    pip = folder / "pip.conf"
    pip.write_text(
        "\n".join(["[global]", *(f"{key} = {value}" for key, value in settings.items())])
    )
    return [*arguments, "--secret", f"id=pip.conf,src={pip}"]


def drop_old_layers() -> None:
    """The cache only grows: from time to time it starts anew, before the first build."""
    if len(_buildah("images", "--all", "--quiet").split()) > _LAYERS_AT_MOST:
        _buildah("rmi", "--all", "--force")


def _buildah(*arguments: str | Path) -> str:
    storage = ("--root", layout.BUILDER, "--runroot", layout.BUILDER_STATE)
    return run("buildah", *storage, "--storage-driver", _storage_driver(), *arguments)


@functools.cache
def _storage_driver() -> str:
    """Overlay where the file system can carry it: vfs copies every layer whole."""
    chosen = layout.BUILDER / "driver"
    if not chosen.exists():
        layout.BUILDER.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=layout.HOME) as name:
            lower, upper, work, merged = (Path(name, each) for each in ("l", "u", "w", "m"))
            for folder in (lower, upper, work, merged):
                folder.mkdir()
            options = f"lowerdir={lower},upperdir={upper},workdir={work}"
            try:
                run("mount", "-t", "overlay", "overlay", "-o", options, merged)
                run("umount", merged)
                chosen.write_text("overlay")
            except CommandFailed:
                chosen.write_text("vfs")
    return chosen.read_text()
