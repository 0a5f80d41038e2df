"""The control groups below which all pods of the cluster run."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from cluster.tool import layout
from cluster.tool.errors import ClusterError

_MOUNT = Path("/sys/fs/cgroup")
_EMPTY_SECONDS = 10
_CPUSET_SETTINGS = ("cpuset.cpus", "cpuset.mems")


def create() -> None:
    """A group of our own: what is left below it is ours, not that of another cluster."""
    if (_MOUNT / "cgroup.controllers").exists():
        _create_unified()
        return
    for hierarchy in _MOUNT.iterdir():
        if hierarchy.is_symlink() or not (hierarchy / "cgroup.procs").exists():
            continue
        group = hierarchy / layout.CGROUP
        group.mkdir(exist_ok=True)
        for setting in _CPUSET_SETTINGS:  # a new group starts with none, and can hold no process
            if (group / setting).exists():
                (group / setting).write_text((hierarchy / setting).read_text())


def kill_all() -> None:
    """Ends every container: nothing of a pod runs outside its group."""
    while pids := list(_pids()):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def remove() -> None:
    """A group stays busy for a moment after its last process ended."""
    deadline = time.monotonic() + _EMPTY_SECONDS
    while (roots := _roots()) and time.monotonic() < deadline:
        for root in roots:
            # The innermost first; the files inside are the kernel's and go along.
            for folder, _, _ in os.walk(root, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(folder)
        time.sleep(0.02)
    if roots:
        raise ClusterError(f"control groups can't be removed: {' '.join(map(str, roots))}")


def _create_unified() -> None:
    group = _MOUNT / layout.CGROUP
    group.mkdir(exist_ok=True)
    for folder in (_MOUNT, group):
        for controller in (folder / "cgroup.controllers").read_text().split():
            with contextlib.suppress(OSError):  # one that can't be handed down
                (folder / "cgroup.subtree_control").write_text(f"+{controller}")


def _roots() -> list[Path]:
    return [
        path
        for path in [_MOUNT / layout.CGROUP, *_MOUNT.glob(f"*/{layout.CGROUP}")]
        if path.is_dir()
    ]


def _pids() -> Iterator[int]:
    for root in _roots():
        for folder, _, _ in os.walk(root):  # goes on where a group vanishes meanwhile
            with contextlib.suppress(OSError):
                yield from map(int, Path(folder, "cgroup.procs").read_text().split())
