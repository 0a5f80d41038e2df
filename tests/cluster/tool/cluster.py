"""The cluster as a whole: up, down, and what tests do to a running one."""

import contextlib
import fcntl
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from cluster.tool import (
    binaries,
    certificates,
    cgroups,
    containers,
    control_plane,
    images,
    layout,
    leftovers,
    machine,
    network,
    node,
    process,
    prometheus,
)
from cluster.tool.command import run, say
from cluster.tool.containers import Container
from cluster.tool.errors import ClusterDown, CommandFailed, Foreign, NotReady

_READY_SECONDS = 60


class Cluster:
    """The running cluster of this checkout. Get it with `Cluster.load()`."""

    kubeconfig: Path = layout.KUBECONFIG
    binaries: Path = layout.BIN

    @classmethod
    def load(cls) -> "Cluster":
        """Raises ClusterDown if none runs."""
        if not _processes_alive():
            raise ClusterDown("no cluster runs: run `make cluster-up`")
        return cls()

    def kubectl(
        self, *arguments: str, stdin: str | None = None, timeout_seconds: float = 60
    ) -> str:
        """What kubectl wrote to stdout, as the cluster's administrator."""
        return run(
            *(layout.BIN / "kubectl", f"--kubeconfig={self.kubeconfig}", *arguments),
            stdin=stdin,
            timeout_seconds=timeout_seconds,
        )

    def healthy(self) -> bool:
        """The API server answers and the node takes pods."""
        try:
            self.kubectl("get", "--raw=/readyz", "--request-timeout=5s")
            ready = self.kubectl(
                *("get", "node", layout.NODE, "--request-timeout=5s"),
                "-o=jsonpath={.status.conditions[?(@.type=='Ready')].status}",
            )
        except CommandFailed:
            return False
        return ready == "True"

    def containers(self) -> list[Container]:
        """Those that run now, without the pods' sandboxes."""
        return containers.running()

    def kill_container(self, pod_uid: str, name: str) -> Container:
        """kill -9 of its process 1. Raises ClusterError if it does not run."""
        return containers.kill(pod_uid, name)

    def stop(self, name: str, *, grace_seconds: float = 10) -> None:
        """Stops one process (`status` lists their names); its record stays for `start`."""
        process.stop([process.find(name)], grace_seconds=grace_seconds)

    def start(self, name: str) -> None:
        """Starts a stopped process with the arguments it had; does nothing if it runs."""
        previous = process.find(name)
        if not previous.alive():
            process.start(name, previous.arguments)

    def pause(self, name: str) -> None:
        """SIGSTOP: connections stay open, nobody answers."""
        process.find(name).signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        process.find(name).signal(signal.SIGCONT)

    @contextlib.contextmanager
    def paused(self, name: str) -> Iterator[None]:
        self.pause(name)
        try:
            yield
        finally:
            self.resume(name)

    def stop_apiserver(self, *, grace_seconds: float = 1) -> None:
        """Killed soon by default: left alone it waits ten seconds for watches to end."""
        self.stop("kube-apiserver", grace_seconds=grace_seconds)

    def start_apiserver(self) -> None:
        """Returns when it is ready."""
        self.start("kube-apiserver")
        _wait_for("the API server", _apiserver_ready)

    def restart_apiserver(self) -> None:
        self.stop_apiserver()
        self.start_apiserver()


def up() -> Cluster:
    """Brings a cluster with the current images up; leaves a healthy one as it is."""
    machine.require_capable()
    with _lock():
        _refuse_foreign()
        machine.install_packages()
        binaries.provide()
        images.build()
        if _processes_alive() and Cluster().healthy():
            say("The cluster runs")
        else:
            if leftovers.present():
                say("Removing what an earlier cluster left")
                leftovers.remove(_owner() or layout.CHECKOUT)
                leftovers.remove(layout.CHECKOUT)
            _start()
        images.load()
        return Cluster()


def down() -> None:
    """Leaves nothing but the caches in `.cluster`."""
    if not leftovers.present():
        return
    machine.require_capable()
    with _lock():
        _refuse_foreign()
        leftovers.remove(layout.CHECKOUT)


def build_images() -> None:
    """Builds what changed; a cluster that runs gets it at once."""
    machine.require_capable()
    with _lock():
        machine.install_packages()
        images.build()
        if _owner() == layout.CHECKOUT and _processes_alive():
            images.load()


def add_prometheus() -> Path:
    """Brings the image of Prometheus and its operator to the running cluster.

    Returns the folder of its CRDs. Not part of `up`: few tests need it, and it takes minutes to
    build.
    """
    machine.require_capable()
    with _lock():
        Cluster.load()
        prometheus.provide()
        images.build_prometheus()
        images.load()
    return layout.PROMETHEUS_CRDS


def status() -> dict[str, str]:
    """What each process does, by name. Raises Foreign if the cluster is another checkout's."""
    _refuse_foreign()
    return {
        each.name: f"runs as {each.pid}" if each.alive() else "is not running"
        for each in process.recorded()
    }


def _start() -> None:
    say("Starting the cluster")
    layout.RUN.mkdir(parents=True)
    layout.RUNTIME.mkdir(parents=True)
    layout.OWNER.write_text(str(layout.CHECKOUT))
    certificates.issue_all()
    cgroups.create()
    network.create()
    process.start("etcd", control_plane.etcd())
    process.start("kube-apiserver", control_plane.apiserver())
    _start_containerd()
    images.load()  # before the kubelet: it needs the pause image at once
    _wait_for("the API server", _apiserver_ready)
    process.start("kube-controller-manager", control_plane.controller_manager())
    process.start("kube-scheduler", control_plane.scheduler())
    process.start("kubelet", node.kubelet())
    process.start("kube-proxy", node.proxy())
    process.start("coredns", node.dns())
    _wait_for("the node", Cluster().healthy)
    _wait_for("the default service account", _service_account_there)
    _wait_for("the Services' addresses", _services_reachable)
    _wait_for("the Services' names", _names_resolved)


def _start_containerd() -> None:
    """With the images of the last cluster, but without its containers."""
    process.start("containerd", node.containerd())
    _wait_for("containerd", _containerd_ready)
    if containers.forget_all():
        process.stop([process.find("containerd")])  # it holds in memory what it found at its start
        process.start("containerd", node.containerd())
        _wait_for("containerd", _containerd_ready)


def _processes_alive() -> bool:
    if _owner() != layout.CHECKOUT:
        return False
    alive = {each.name for each in process.recorded() if each.alive()}
    return alive.issuperset({*control_plane.NAMES, *node.NAMES})


def _owner() -> Path | None:
    return Path(layout.OWNER.read_text()) if layout.OWNER.exists() else None


def _refuse_foreign() -> None:
    owner = _owner()
    if owner not in (None, layout.CHECKOUT) and any(each.alive() for each in process.recorded()):
        raise Foreign(
            f"the cluster of {owner} runs on this machine: end it there with `make cluster-down`"
        )


@contextlib.contextmanager
def _lock() -> Iterator[None]:
    """Two runs at once would take each other's half-built cluster for a leftover."""
    layout.HOME.mkdir(exist_ok=True)
    with (layout.HOME / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _wait_for(what: str, ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while not ready():
        for each in process.recorded():
            if not each.alive():
                raise NotReady(f"{each.name} ended: see {layout.LOGS / each.name}.log")
        if time.monotonic() > deadline:
            raise NotReady(f"{what} did not become ready in {_READY_SECONDS} s: see {layout.LOGS}")
        time.sleep(0.1)


def _apiserver_ready() -> bool:
    try:
        Cluster().kubectl("get", "--raw=/readyz", "--request-timeout=2s")
    except CommandFailed:
        return False
    return True


def _containerd_ready() -> bool:
    try:
        containers.ctr("version")
    except CommandFailed:
        return False
    return True


def _service_account_there() -> bool:
    try:
        Cluster().kubectl("get", "serviceaccount", "default", "--namespace=default")
    except CommandFailed:
        return False
    return True


def _names_resolved() -> bool:
    """Asked as a pod asks: one question of one name, whose answer ends with the address."""
    name = f"kubernetes.default.svc.{layout.DOMAIN}"
    labels = b"".join(bytes([len(each)]) + each.encode() for each in name.split("."))
    question = b"\0\1\1\0\0\1\0\0\0\0\0\0" + labels + b"\0\0\1\0\1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(0.5)
        with contextlib.suppress(OSError):
            asking.sendto(question, (layout.GATEWAY, 53))
            return socket.inet_aton(layout.SERVICE_ADDRESS) in asking.recv(512)
    return False


def _services_reachable() -> bool:
    with contextlib.suppress(OSError), socket.create_connection((layout.SERVICE_ADDRESS, 443), 0.5):
        return True
    return False
