"""The cluster's own certificate authority, what it signs, and kubeconfigs that carry it."""

import base64
import json
from collections.abc import Sequence
from pathlib import Path

from cluster.tool import layout
from cluster.tool.command import run

_DAYS = "3650"
_CURVE = ("-pkeyopt", "ec_paramgen_curve:P-256")


def path(name: str) -> Path:
    return layout.CERTIFICATES / name


def create_authority() -> None:
    """The authority and the key pair of service account tokens."""
    layout.CERTIFICATES.mkdir(parents=True, exist_ok=True)
    run(
        *("openssl", "req", "-x509", "-newkey", "ec", *_CURVE, "-nodes", "-days", _DAYS),
        *("-subj", "/CN=llmqueue-test-cluster", "-addext", "keyUsage=critical,keyCertSign,cRLSign"),
        *("-keyout", path("ca.key"), "-out", path("ca.crt")),
    )
    run("openssl", "genpkey", "-algorithm", "EC", *_CURVE, "-out", path("accounts.key"))
    run("openssl", "pkey", "-in", path("accounts.key"), "-pubout", "-out", path("accounts.pub"))


def issue(name: str, *, user: str, group: str = "", addresses: Sequence[str] = ()) -> None:
    """`name.key` and `name.crt`, good as a client's and, with addresses, as a server's."""
    extensions = ["keyUsage=critical,digitalSignature", "extendedKeyUsage=clientAuth,serverAuth"]
    if addresses:
        extensions.append(f"subjectAltName={','.join(addresses)}")
    path(f"{name}.ext").write_text("\n".join(extensions))
    subject = (f"/O={group}" if group else "") + f"/CN={user}"
    run(
        *("openssl", "req", "-new", "-newkey", "ec", *_CURVE, "-nodes", "-subj", subject),
        *("-keyout", path(f"{name}.key"), "-out", path(f"{name}.csr")),
    )
    run(
        *("openssl", "x509", "-req", "-days", _DAYS, "-CAcreateserial"),
        *("-CA", path("ca.crt"), "-CAkey", path("ca.key"), "-extfile", path(f"{name}.ext")),
        *("-in", path(f"{name}.csr"), "-out", path(f"{name}.crt")),
    )


def issue_all() -> None:
    """Everybody's, by the names that Kubernetes' own roles are bound to."""
    create_authority()
    issue(
        "apiserver",
        user="kube-apiserver",
        addresses=[
            "DNS:localhost",
            "DNS:kubernetes",
            "DNS:kubernetes.default",
            "DNS:kubernetes.default.svc",
            "IP:127.0.0.1",
            f"IP:{layout.GATEWAY}",
            f"IP:{layout.SERVICE_ADDRESS}",
        ],
    )
    issue("admin", user="admin", group="system:masters")
    issue("kubelet", user=f"system:node:{layout.NODE}", group="system:nodes")
    for component in ("kube-controller-manager", "kube-scheduler", "kube-proxy"):
        issue(component, user=f"system:{component}")
    for name in ("admin", "kubelet", "kube-controller-manager", "kube-scheduler", "kube-proxy"):
        write_kubeconfig(name, path(f"{name}.kubeconfig"))
    write_kubeconfig("admin", layout.KUBECONFIG)


def write_kubeconfig(name: str, target: Path) -> None:
    """Carries all certificates, so that the file alone is enough."""
    cluster = {"server": layout.APISERVER, "certificate-authority-data": _encoded("ca.crt")}
    user = {
        "client-certificate-data": _encoded(f"{name}.crt"),
        "client-key-data": _encoded(f"{name}.key"),
    }
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "llmqueue", "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": "llmqueue", "context": {"cluster": "llmqueue", "user": name}}],
        "current-context": "llmqueue",
    }
    target.touch(mode=0o600)
    target.write_text(json.dumps(content, indent=1))


def _encoded(name: str) -> str:
    return base64.b64encode(path(name).read_bytes()).decode()
