"""The one node: containerd, kubelet, kube-proxy and the DNS, their settings and command lines."""

import json
import shutil
from pathlib import Path

from cluster.tool import layout, machine
from cluster.tool.certificates import path

NAMES = ("containerd", "kubelet", "kube-proxy", "coredns")
PAUSE_IMAGE = "llmqueue.test/pause:dev"
POD_LOGS = layout.RUN / "pods"
KUBELET_ROOT = layout.RUN / "kubelet"

# restrict_oom_score_adj: in a container or microVM without CAP_SYS_RESOURCE no sandbox would start
# ("can't get final child's PID from pipe").
# netns_mounts_under_state_dir: pods' network namespaces are then known as ours when they are left.
_CONTAINERD = """\
version = 2
root = "{root}"
state = "{state}"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
]
[grpc]
address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
path = "{root}/opt"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
Root = "{state}/runc"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{cni_bin}"
conf_dir = "{cni_configuration}"
"""

# On the node itself, where pods reach it as its only address: no pod has to start before others do.
_COREFILE = """\
.:53 {{
  bind {address}
  errors
  kubernetes {domain} {{
    kubeconfig {kubeconfig}
    pods disabled
    ttl 1
  }}
  forward . /etc/resolv.conf
  cache 1
}}
"""


def containerd() -> list[str | Path]:
    configuration = layout.RUNTIME / "containerd.toml"
    configuration.write_text(
        _CONTAINERD.format(
            root=layout.CONTAINERD_ROOT,
            state=layout.CONTAINERD_STATE,
            socket=layout.CONTAINERD_SOCKET,
            pause=PAUSE_IMAGE,
            cni_bin=machine.cni_folder(),
            cni_configuration=layout.CNI_CONFIGURATION,
        )
    )
    program = shutil.which("containerd")
    assert program is not None
    return [program, "--config", configuration, "--log-level", "warn"]


def kubelet() -> list[str | Path]:
    configuration = layout.RUN / "kubelet.json"
    configuration.write_text(json.dumps(_kubelet_configuration(), indent=1))
    return [
        layout.BIN / "kubelet",
        f"--config={configuration}",
        f"--kubeconfig={path('kubelet.kubeconfig')}",
        f"--hostname-override={layout.NODE}",
        f"--node-ip={layout.GATEWAY}",
        f"--root-dir={KUBELET_ROOT}",
        f"--cert-dir={KUBELET_ROOT / 'pki'}",
    ]


def proxy() -> list[str | Path]:
    return [
        layout.BIN / "kube-proxy",
        f"--kubeconfig={path('kube-proxy.kubeconfig')}",
        f"--hostname-override={layout.NODE}",
        "--proxy-mode=iptables",
        f"--cluster-cidr={layout.POD_SUBNET}",
        # A pod that reaches another over a Service must get the answer the same way back: on one
        # bridge it would come straight from the other's address.
        "--masquerade-all",
        "--conntrack-max-per-core=0",  # leave the machine's own limit alone
        "--iptables-min-sync-period=100ms",
    ]


def dns() -> list[str | Path]:
    configuration = layout.RUN / "Corefile"
    configuration.write_text(
        _COREFILE.format(address=layout.GATEWAY, domain=layout.DOMAIN, kubeconfig=layout.KUBECONFIG)
    )
    return [layout.BIN / "coredns", "-conf", configuration]


def _kubelet_configuration() -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": layout.GATEWAY,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(path("ca.crt"))},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{layout.CONTAINERD_SOCKET}",
        "podLogsDir": str(POD_LOGS),
        "volumePluginDir": str(KUBELET_ROOT / "volume-plugins"),
        "staticPodPath": "",
        "clusterDNS": [layout.GATEWAY],
        "clusterDomain": layout.DOMAIN,
        "maxPods": 250,
        # Whatever the machine: old control groups, swap, no partition of its own.
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{layout.CGROUP}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,
        "enforceNodeAllocatable": [],
        # A test's pods must not be evicted for what else runs on the machine.
        "evictionHard": {"memory.available": "64Mi", "nodefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "imageMaximumGCAge": "0s",
        # Quick rather than sparing: changes of a Secret reach the pod with the next sync.
        "syncFrequency": "2s",
        "nodeStatusUpdateFrequency": "4s",
        "kubeAPIQPS": 200,
        "kubeAPIBurst": 400,
        "eventRecordQPS": 0,
        "registerWithTaints": [],
    }
