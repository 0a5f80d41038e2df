"""JSON over the API server: raw objects in and out, the server's refusals as errors of ours.

Typed models of the client library would copy every pod several times; the operator reads a few
fields of many objects.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration

from llmqueue.documents import is_object, objects_at
from llmqueue.errors import UsageError
from llmqueue_operator.errors import (
    AlreadyExists,
    ApiError,
    ApiUnavailable,
    FieldConflict,
    NotFound,
    Refused,
    StaleVersion,
)
from llmqueue_operator.kube.kinds import Kind

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
REQUEST_SECONDS = 30.0
_PAGE = 100
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
_LATER = (408, 429)

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Access:
    """Where the API server is, and as whom it is asked; for clients of their own."""

    server: str
    ca_path: str | None
    token: str | None = field(repr=False)
    certificate_path: str | None
    private_key_path: str | None
    insecure: bool


class KubeClient:
    """One connection pool to one API server; made inside the event loop."""

    def __init__(self, configuration: Any) -> None:
        self._configuration = configuration
        self._api: Any = ApiClient(configuration)

    @classmethod
    async def connect(cls, kubeconfig: Path | None = None) -> KubeClient:
        """With this kubeconfig; else in a cluster with the pod's service account, elsewhere with
        the kubeconfig of `kubectl`.

        Raises UsageError where there is neither.
        """
        configuration: Any = Configuration()
        loading: Any = config
        try:
            if kubeconfig is None and _SERVICE_ACCOUNT.exists():  # noqa: ASYNC240 - once, at the start
                loading.load_incluster_config(client_configuration=configuration)
            else:
                file = None if kubeconfig is None else str(kubeconfig)
                await loading.load_kube_config(file, client_configuration=configuration)
        except Exception as exc:  # an edge: the library raises many kinds, yaml's among them
            raise UsageError(
                f"no access to Kubernetes: {exc}. In a pod a service account is needed, elsewhere"
                " a kubeconfig (KUBECONFIG)"
            ) from exc
        return cls(configuration)

    async def access(self) -> Access:
        """As it is now: tokens of service accounts change."""
        known = self._configuration
        header: str = await known.get_api_key_with_prefix("BearerToken") or ""
        return Access(
            server=known.host,
            ca_path=known.ssl_ca_cert,
            token=header.rsplit(maxsplit=1)[-1] if header else None,
            certificate_path=known.cert_file,
            private_key_path=known.key_file,
            insecure=not known.verify_ssl,
        )

    async def close(self) -> None:
        await self._api.close()

    async def get(self, kind: Kind, namespace: str, name: str) -> Object:
        """Raises NotFound."""
        return await self.request("GET", kind.path(namespace, name))

    async def listed(
        self, kind: Kind, namespace: str | None, *, labels: str = ""
    ) -> AsyncIterator[Object]:
        """All objects, page by page; they lack apiVersion and kind, as the server sends them."""
        query: dict[str, str] = {"limit": str(_PAGE)}
        if labels:
            query["labelSelector"] = labels
        while True:
            page = await self.request("GET", kind.path(namespace), query=query)
            for item in page.get("items", ()):
                yield item
            more = page["metadata"].get("continue")
            if not more:
                return
            query["continue"] = more

    async def create(self, kind: Kind, namespace: str, document: Object) -> Object:
        """Raises AlreadyExists, NotFound (the namespace), Refused."""
        return await self.request("POST", kind.path(namespace), body=document)

    async def replace(self, kind: Kind, namespace: str, name: str, document: Object) -> Object:
        """Raises StaleVersion where the document's resourceVersion is not the present one."""
        return await self.request("PUT", kind.path(namespace, name), body=document)

    async def apply(
        self,
        kind: Kind,
        namespace: str,
        document: Object,
        *,
        manager: str,
        force: bool = False,
        subresource: str = "",
    ) -> Object:
        """Server-side apply. Raises FieldConflict, StaleVersion, Refused."""
        return await self.request(
            "PATCH",
            kind.path(namespace, document["metadata"]["name"], subresource),
            query={"fieldManager": manager, "force": str(force).lower()},
            body=document,
            content_type=APPLY,
        )

    async def merge(self, kind: Kind, namespace: str, name: str, change: Object) -> Object:
        """Merge patch; None removes a field."""
        path = kind.path(namespace, name)
        return await self.request("PATCH", path, body=change, content_type=MERGE)

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        content_type: str = "application/json",
        seconds: float = REQUEST_SECONDS,
    ) -> Object:
        """One exchange, never repeated. Raises ApiError."""
        try:
            async with asyncio.timeout(seconds):
                method, url, headers, content, _ = await self._api.param_serialize(
                    method,
                    path,
                    query_params=list((query or {}).items()),
                    header_params={"Accept": "application/json", "Content-Type": content_type},
                    body=body,
                    auth_settings=["BearerToken"],
                )
                answer = await self._api.call_api(
                    method, url, header_params=headers, body=content, _request_timeout=seconds
                )
                raw: bytes = await answer.read()
        except (TimeoutError, aiohttp.ClientError, OSError) as exc:
            raise ApiUnavailable(
                f"the API server does not answer: {exc or type(exc).__name__}"
            ) from exc
        found = _document(raw)
        if answer.status >= 400:
            raise _error(int(answer.status), found)
        return found


def _document(raw: bytes) -> Object:
    try:
        found = json.loads(raw)
    except ValueError:
        return {"message": raw[:200].decode(errors="replace")}
    return found if is_object(found) else {}


def _error(status: int, answer: Object) -> ApiError:
    message = str(answer.get("message") or f"HTTP status {status}")
    if status == 404:
        return NotFound(message)
    if status == 409:
        return _conflict(message, answer)
    if status >= 500 or status in _LATER:
        return ApiUnavailable(message)
    # 401: a token that is being renewed; whoever has none for good sees it in the log.
    return ApiUnavailable(message) if status == 401 else Refused(message)


def _conflict(message: str, answer: Object) -> ApiError:
    if answer.get("reason") == "AlreadyExists":
        return AlreadyExists(message)
    causes = objects_at(answer, "details", "causes")
    managers = {_manager(c) for c in causes if c.get("reason") == "FieldManagerConflict"}
    if managers:
        return FieldConflict(message, managers=tuple(sorted(managers)))
    return StaleVersion(message)


def _manager(cause: Object) -> str:
    """The name between the first quotes of `conflict with "kubectl" using apps/v1`."""
    parts = str(cause.get("message", "")).split('"')
    return parts[1] if len(parts) > 1 else "another manager"
