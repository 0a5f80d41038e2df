"""The pods' bridge, and the rules that kube-proxy and the network plugins leave in iptables."""

import contextlib
import json
import re
import shutil
from pathlib import Path

from cluster.tool import layout
from cluster.tool.command import run
from cluster.tool.errors import CommandFailed

_NAME = "llmqueue"
_ADDRESSES = layout.RUNTIME / "addresses"
# The CNI library's own notes; its folder can't be set from containerd's settings.
_RESULTS = Path("/var/lib/cni/results")
_OUR_CHAIN = re.compile(r"^(KUBE|CNI)-")


def create() -> None:
    """The bridge is there before the first pod: the API server advertises its address."""
    run("ip", "link", "add", layout.BRIDGE, "type", "bridge")
    prefix = layout.POD_SUBNET.partition("/")[2]
    run("ip", "address", "add", f"{layout.GATEWAY}/{prefix}", "dev", layout.BRIDGE)
    run("ip", "link", "set", layout.BRIDGE, "up")
    # A Service that kube-proxy does not know yet must not be looked for outside of the machine.
    run("ip", "route", "add", layout.SERVICE_SUBNET, "dev", layout.BRIDGE)
    bridge = {
        "type": "bridge",
        "bridge": layout.BRIDGE,
        "isGateway": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": str(_ADDRESSES),
            "ranges": [[{"subnet": layout.POD_SUBNET, "gateway": layout.GATEWAY}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    content = {"cniVersion": "0.4.0", "name": _NAME, "plugins": [bridge, portmap]}
    layout.CNI_CONFIGURATION.mkdir(parents=True, exist_ok=True)
    (layout.CNI_CONFIGURATION / "10-llmqueue.conflist").write_text(json.dumps(content, indent=1))


def remove() -> None:
    """The bridge, the notes and the rules; pods' ends went with their namespaces."""
    if Path("/sys/class/net", layout.BRIDGE).exists():
        run("ip", "link", "delete", layout.BRIDGE)
    _remove_notes()
    for program in ("iptables", "ip6tables"):
        if shutil.which(f"{program}-save"):
            _remove_chains(program)


def _remove_notes() -> None:
    """Those of pods whose network was below our folder."""
    for note in _RESULTS.glob("*"):
        if str(layout.RUNTIME) in note.read_text(errors="replace"):
            note.unlink()
    for folder in (_RESULTS, _RESULTS.parent):
        with contextlib.suppress(OSError):  # not there, or not empty
            folder.rmdir()


def _remove_chains(program: str) -> None:
    try:
        saved = run(f"{program}-save")
    except CommandFailed:  # a kernel without IPv6
        return
    if restored := without_our_chains(saved):
        run(f"{program}-restore", "--noflush", stdin=restored)


def without_our_chains(saved: str) -> str:
    """What `iptables-restore --noflush` needs in order to take our chains out of `saved`.

    Others' rules are not touched, so those that came meanwhile stay.
    """
    lines: list[str] = []
    for table in saved.split("COMMIT"):
        header = re.search(r"^\*\w+$", table, re.MULTILINE)
        chains = [
            name for name in re.findall(r"^:(\S+)", table, re.MULTILINE) if _OUR_CHAIN.match(name)
        ]
        if header is None or not chains:
            continue
        jumps = [
            f"-D{rule[2:]}"
            for rule in table.splitlines()
            if re.match(r"-A (?!KUBE-|CNI-).* -[jg] (KUBE|CNI)-", rule)
        ]
        flushed = [f"-F {name}" for name in chains]
        deleted = [f"-X {name}" for name in chains]
        lines += [header.group(), *jumps, *flushed, *deleted, "COMMIT"]
    return "".join(f"{line}\n" for line in lines)
