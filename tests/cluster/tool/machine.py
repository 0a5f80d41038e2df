"""What the machine must be able to do, and the packages it needs for it."""

import os
import shutil
import sys
from pathlib import Path

from cluster.tool.command import run, say
from cluster.tool.errors import CommandFailed, Incapable

# Program or file -> Debian's package. Looked up by program: CI machines bring some of them along
# under other packages that conflict with Debian's.
_PACKAGES = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "iptables-restore": "iptables",
    "conntrack": "conntrack",
    "ip": "iproute2",
    "mount": "mount",
    "openssl": "openssl",
    "buildah": "buildah",
    "mmdebstrap": "mmdebstrap",
}
_BUSYBOX = ("/bin/busybox", "/usr/bin/busybox")
_CNI_FOLDERS = ("/usr/lib/cni", "/opt/cni/bin")


def require_capable() -> None:
    """Raises Incapable with the first reason why no cluster can run here."""
    if sys.platform != "linux":
        raise Incapable(f"a cluster needs Linux, this is {sys.platform}")
    if os.geteuid() != 0:
        raise Incapable("a cluster needs root, for containers and their network")
    if not os.access("/sys/fs/cgroup", os.W_OK):
        raise Incapable("a cluster needs control groups, /sys/fs/cgroup is not writable")
    try:
        run("unshare", "--mount", "--net", "--pid", "--fork", "true")
    except CommandFailed as exc:
        raise Incapable("a cluster needs namespaces of its own, this machine refuses them") from exc
    # Debian keeps some of the programs where a plain user's PATH does not look.
    os.environ["PATH"] += os.pathsep + "/usr/sbin:/sbin"


def install_packages() -> None:
    """Installs what is missing, and says what."""
    missing = _missing_packages()
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise Incapable(f"these are missing and there is no apt-get: {' '.join(missing)}")
    say(f"Installing with apt-get: {' '.join(missing)}")
    apt = ("apt-get", "-qq", "-o", "DPkg::Lock::Timeout=120")
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    try:
        run(*apt, "update", environment=quiet)
        run(*apt, "install", "-y", "--no-install-recommends", *missing, environment=quiet)
    except CommandFailed as exc:
        raise Incapable(f"packages can't be installed: {exc}") from exc


def cni_folder() -> Path:
    """Where the network plugins are."""
    for folder in _CNI_FOLDERS:
        if Path(folder, "bridge").exists():
            return Path(folder)
    raise Incapable("the network plugins (containernetworking-plugins) are missing")


def busybox() -> Path:
    """A static busybox, what the pause image consists of."""
    for candidate in _BUSYBOX:
        if Path(candidate).exists():
            return Path(candidate)
    raise Incapable("busybox (busybox-static) is missing")


def _missing_packages() -> list[str]:
    missing = {package for program, package in _PACKAGES.items() if shutil.which(program) is None}
    if not any(Path(folder, "bridge").exists() for folder in _CNI_FOLDERS):
        missing.add("containernetworking-plugins")
    if not any(Path(candidate).exists() for candidate in _BUSYBOX):
        missing.add("busybox-static")
    return sorted(missing)
