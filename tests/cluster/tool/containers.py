"""The containers that run on the node, as the runtime sees them."""

import contextlib
import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from cluster.tool import layout
from cluster.tool.command import run
from cluster.tool.errors import ClusterError

_TASKS = layout.CONTAINERD_STATE / "io.containerd.runtime.v2.task" / "k8s.io"
_ANNOTATION = "io.kubernetes.cri."


@dataclass(frozen=True, slots=True)
class Container:
    """`pid` is that of the container's process 1, seen from the machine."""

    id: str
    namespace: str
    pod: str
    pod_uid: str
    name: str
    pid: int


def running() -> list[Container]:
    """Without the pods' sandboxes. Read from containerd's state: no program has to be started."""
    found: list[Container] = []
    for folder in _TASKS.glob("*"):
        # One that ends meanwhile takes its files with it.
        with contextlib.suppress(OSError, ValueError):
            annotations = json.loads((folder / "config.json").read_text())["annotations"]
            pid = int((folder / "init.pid").read_text())
            if annotations[f"{_ANNOTATION}container-type"] != "container" or not _runs(pid):
                continue
            found.append(
                Container(
                    id=folder.name,
                    namespace=annotations[f"{_ANNOTATION}sandbox-namespace"],
                    pod=annotations[f"{_ANNOTATION}sandbox-name"],
                    pod_uid=annotations[f"{_ANNOTATION}sandbox-uid"],
                    name=annotations[f"{_ANNOTATION}container-name"],
                    pid=pid,
                )
            )
    return found


def kill(pod_uid: str, name: str) -> Container:
    """kill -9 of the container's process 1, as the kernel does when memory is short."""
    for container in running():
        if (container.pod_uid, container.name) == (pod_uid, name):
            os.kill(container.pid, signal.SIGKILL)
            return container
    raise ClusterError(f"no container {name} of the pod {pod_uid} runs on the node")


def shim_sockets() -> set[Path]:
    """Where the containers' shims listen: outside of containerd's own folders."""
    notes = [path.read_text() for path in _TASKS.glob("*/address")]
    return {Path(note.removeprefix("unix://")) for note in notes if note.startswith("unix:///")}


def forget_all() -> bool:
    """Removes the records and file systems of containers that no longer run. False: there are none."""
    left = ctr("containers", "list", "--quiet").split()
    if left:
        ctr("containers", "delete", *left)
    return bool(left)


def ctr(*arguments: str) -> str:
    """containerd's own tool, on what the kubelet sees."""
    program = ("ctr", "--address", layout.CONTAINERD_SOCKET, "--namespace", "k8s.io")
    return run(*program, *arguments, timeout_seconds=30)


def _runs(pid: int) -> bool:
    return os.path.exists(os.path.join("/proc", str(pid), "root", "."))
