"""A cluster that was given, in place of the one of this machine."""

from __future__ import annotations

import os

import pytest

from cluster.tool import Cluster

KUBECONFIG = os.environ.get("LLMQUEUE_TEST_KUBECONFIG", "")
IMAGES = os.environ.get("LLMQUEUE_TEST_IMAGES", "llmqueue.test")
"""Where the images operator:dev, worker:dev, cli:dev and testbed:dev are, and operator:next and
worker:next, the same under another tag; the cluster must be able to pull them, or have them."""
PULL_POLICY = "IfNotPresent" if KUBECONFIG else "Never"


def node() -> Cluster:
    """The one node, where it is this machine: its processes and containers can be killed."""
    if KUBECONFIG:
        pytest.skip("LEFT OUT: kills processes of the node, which the given cluster does not offer")
    return Cluster.load()
