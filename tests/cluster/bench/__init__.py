"""What the tests on a cluster are written with."""

from cluster.bench.given import node
from cluster.bench.kube import Kube
from cluster.bench.provider import ProviderPod
from cluster.bench.space import Space
from cluster.bench.watch import Watch, until, watching

__all__ = ["Kube", "ProviderPod", "Space", "Watch", "node", "until", "watching"]
