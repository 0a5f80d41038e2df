"""The command lines of the control plane."""

from pathlib import Path

from cluster.tool import layout
from cluster.tool.certificates import path

NAMES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


def etcd() -> list[str | Path]:
    client = f"http://127.0.0.1:{layout.ETCD_PORT}"
    peer = f"http://127.0.0.1:{layout.ETCD_PEER_PORT}"
    return [
        layout.BIN / "etcd",
        "--unsafe-no-fsync",  # lives no longer than the tests
        f"--data-dir={layout.RUN / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--log-level=warn",
    ]


def apiserver() -> list[str | Path]:
    """Admission plugins are Kubernetes' defaults, pod security among them."""
    return [
        layout.BIN / "kube-apiserver",
        f"--etcd-servers=http://127.0.0.1:{layout.ETCD_PORT}",
        "--bind-address=0.0.0.0",
        f"--secure-port={layout.APISERVER_PORT}",
        f"--advertise-address={layout.GATEWAY}",  # where pods reach it, behind its Service
        f"--service-cluster-ip-range={layout.SERVICE_SUBNET}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--client-ca-file={path('ca.crt')}",
        f"--tls-cert-file={path('apiserver.crt')}",
        f"--tls-private-key-file={path('apiserver.key')}",
        # The kubelet's check of logs and exec: the administrators' group needs no binding.
        f"--kubelet-client-certificate={path('admin.crt')}",
        f"--kubelet-client-key={path('admin.key')}",
        "--kubelet-preferred-address-types=InternalIP",  # its name is in no DNS
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={path('accounts.pub')}",
        f"--service-account-signing-key-file={path('accounts.key')}",
        "--allow-privileged=true",
        "--profiling=false",
        "--v=1",
    ]


def controller_manager() -> list[str | Path]:
    return [
        layout.BIN / "kube-controller-manager",
        *_identity("kube-controller-manager"),
        f"--service-account-private-key-file={path('accounts.key')}",
        f"--root-ca-file={path('ca.crt')}",
        "--use-service-account-credentials=true",
        f"--flex-volume-plugin-dir={layout.RUN / 'volume-plugins'}",
        "--kube-api-qps=300",
        "--kube-api-burst=500",
        "--profiling=false",
    ]


def scheduler() -> list[str | Path]:
    return [
        layout.BIN / "kube-scheduler",
        *_identity("kube-scheduler"),
        "--kube-api-qps=300",
        "--kube-api-burst=500",
        "--profiling=false",
    ]


def _identity(name: str) -> list[str]:
    """Alone in the cluster, it elects no leader and so starts at once."""
    kubeconfig = path(f"{name}.kubeconfig")
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        "--leader-elect=false",
    ]
