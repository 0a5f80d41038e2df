"""A real Kubernetes cluster of one node on this machine, for the tests.

`python -m cluster.tool up|down|images|prometheus|status` from the shell, `Cluster.load()` from a test.
"""

from cluster.tool.cluster import Cluster
from cluster.tool.containers import Container
from cluster.tool.errors import ClusterDown, ClusterError, CommandFailed, Foreign, Incapable

__all__ = [
    "Cluster",
    "ClusterDown",
    "ClusterError",
    "CommandFailed",
    "Container",
    "Foreign",
    "Incapable",
]
