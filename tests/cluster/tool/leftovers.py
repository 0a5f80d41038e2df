"""Takes away everything a cluster leaves, whether it was stopped, crashed or killed."""

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from cluster.tool import cgroups, containers, layout, network, process
from cluster.tool.command import run

# The kubelet's, wherever its own folders are: links from here to containers' logs.
_LOG_LINKS = Path("/var/log/containers")
_SHIM_FOLDERS = (Path("/run/containerd/s"), Path("/run/containerd"))
_PLUGIN_SOCKET = Path("/var/lib/kubelet/device-plugins/kubelet.sock")


def remove(checkout: Path) -> None:
    """In this order: nothing is started again by something that still runs.

    All are killed: nothing they hold is kept, and the API server alone takes ten seconds to go.
    """
    keepers = [each for each in process.recorded() if each.name != "containerd"]
    process.stop(keepers, grace_seconds=0)
    sockets = containers.shim_sockets()
    cgroups.kill_all()
    _kill_shims()
    process.stop(process.recorded(), grace_seconds=0)
    run_folder = checkout / layout.RUN.relative_to(layout.CHECKOUT)
    store = checkout / layout.CONTAINERD_ROOT.relative_to(layout.CHECKOUT)
    _unmount_below(layout.RUNTIME, run_folder, store)
    network.remove()
    cgroups.remove()
    _remove_log_links(run_folder)
    _remove_fixed_places(sockets)
    (checkout / layout.KUBECONFIG.relative_to(layout.CHECKOUT)).unlink(missing_ok=True)
    for folder in (run_folder, layout.RUNTIME):
        shutil.rmtree(folder, ignore_errors=True)


def present() -> bool:
    return layout.RUNTIME.exists() or layout.RUN.exists()


def _kill_shims() -> None:
    """A shim outlives containerd by design; ours name our socket."""
    while shims := _shims():
        for pid in shims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _shims() -> list[int]:
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if "containerd-shim" in words[0] and str(layout.CONTAINERD_SOCKET) in words:
            found.append(int(folder.name))
    return found


def _unmount_below(*folders: Path) -> None:
    """The latest first, as mounts lie on top of each other."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for point in reversed(points):
        if any(Path(point).is_relative_to(folder) for folder in folders):
            run("umount", "--lazy", point)


def _remove_log_links(run_folder: Path) -> None:
    if not _LOG_LINKS.is_dir():
        return
    for link in _LOG_LINKS.iterdir():
        if link.is_symlink() and link.readlink().is_relative_to(run_folder):
            link.unlink(missing_ok=True)
    if not any(_LOG_LINKS.iterdir()):
        _LOG_LINKS.rmdir()


def _remove_fixed_places(shim_sockets: Iterable[Path]) -> None:
    """What kubelet and containerd create where no setting reaches, unless others use it too."""
    for path in (_PLUGIN_SOCKET, *shim_sockets):
        path.unlink(missing_ok=True)
    for folder in (*_PLUGIN_SOCKET.parents[:2], *_SHIM_FOLDERS):
        with contextlib.suppress(OSError):
            folder.rmdir()
