"""Where everything lies, and the addresses of the cluster."""

from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[3]
DEFINITIONS = CHECKOUT / "tests" / "cluster"

# Kept from one cluster to the next.
HOME = CHECKOUT / ".cluster"
BIN = HOME / "bin"
PROMETHEUS_CRDS = HOME / "prometheus-crds"
IMAGES = HOME / "images"
BUILDER = HOME / "buildah"
BUILDER_STATE = HOME / "buildah-state"
# containerd's images, unpacked: to bring them there takes longer than all the rest of a start.
CONTAINERD_ROOT = HOME / "containerd"

# Gone with the cluster.
RUN = HOME / "run"
LOGS = RUN / "logs"
CERTIFICATES = RUN / "certificates"
KUBECONFIG = HOME / "kubeconfig"

# A socket's path has 107 bytes at most, however deep the checkout lies. There is one such folder on a
# machine, so it also says whose cluster runs and as which processes.
RUNTIME = Path("/run/llmqueue-cluster")
PROCESSES = RUNTIME / "processes"
OWNER = RUNTIME / "checkout"
CONTAINERD_SOCKET = RUNTIME / "containerd.sock"
CONTAINERD_STATE = RUNTIME / "containerd"
CNI_CONFIGURATION = RUNTIME / "cni"
CGROUP = "llmqueue-cluster"

NODE = "node"
BRIDGE = "llmq0"
GATEWAY = "10.250.0.1"
POD_SUBNET = "10.250.0.0/23"  # a /24 is too small for 250 pods that come and go
SERVICE_SUBNET = "10.96.0.0/16"
SERVICE_ADDRESS = "10.96.0.1"
DOMAIN = "cluster.local"

# None is Kubernetes' usual one: the machine may serve a cluster already.
APISERVER_PORT = 26443
ETCD_PORT = 26379
ETCD_PEER_PORT = 26380
APISERVER = f"https://127.0.0.1:{APISERVER_PORT}"
