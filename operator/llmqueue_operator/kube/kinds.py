"""The kinds of objects that the operator reads and writes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """`group` is "" for the core API."""

    group: str
    version: str
    plural: str
    kind: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None, name: str = "", subresource: str = "") -> str:
        """URL path; `namespace` None = all namespaces."""
        root = f"/apis/{self.group}" if self.group else "/api"
        parts = [root, self.version]
        if namespace is not None:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/".join(parts)


LLMQUEUES = Kind("llmqueue.dev", "v1alpha1", "llmqueues", "LLMQueue")
DEPLOYMENTS = Kind("apps", "v1", "deployments", "Deployment")
PODS = Kind("", "v1", "pods", "Pod")
LEASES = Kind("coordination.k8s.io", "v1", "leases", "Lease")
EVENTS = Kind("", "v1", "events", "Event")
