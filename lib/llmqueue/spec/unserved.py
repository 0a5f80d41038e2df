"""What the resource declares for later releases: accepted, so that manifests stay valid."""

from __future__ import annotations

from llmqueue.spec.resource import LLMQueue


def unserved_fields(queue: LLMQueue) -> tuple[str, ...]:
    """Paths of fields that are set in this resource and that this version does not act on."""
    spec = queue.spec
    asked = {
        "spec.spend.caps": bool(spec.spend.caps),
        "spec.spend.features": bool(spec.spend.features),
        "spec.spend.prices": bool(spec.spend.prices),
    }
    return tuple(path for path, is_asked in asked.items() if is_asked)
