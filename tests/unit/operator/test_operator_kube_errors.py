"""The API server's refusals as errors of ours."""

from __future__ import annotations

from typing import Any

import pytest

from llmqueue_operator import errors
from llmqueue_operator.kube.client import _error

HPA = {
    "reason": "FieldManagerConflict",
    "message": 'conflict with "hpa" using apps/v1',
    "field": ".spec.replicas",
}
KUBECTL = {**HPA, "message": 'conflict with "kubectl" with subresource "scale" using apps/v1'}


@pytest.mark.parametrize(
    ("status", "answer", "kind"),
    [
        pytest.param(404, {"reason": "NotFound"}, errors.NotFound, id="not found"),
        pytest.param(409, {"reason": "AlreadyExists"}, errors.AlreadyExists, id="exists"),
        pytest.param(409, {"reason": "Conflict"}, errors.StaleVersion, id="S4: changed meanwhile"),
        pytest.param(
            409,
            {"reason": "Conflict", "details": {"causes": [HPA]}},
            errors.FieldConflict,
            id="S21: a foreign field",
        ),
        pytest.param(403, {"reason": "Forbidden"}, errors.Refused, id="forbidden"),
        pytest.param(422, {"reason": "Invalid"}, errors.Refused, id="invalid"),
        pytest.param(400, {}, errors.Refused, id="malformed"),
        pytest.param(401, {}, errors.ApiUnavailable, id="a token that is being renewed"),
        pytest.param(408, {}, errors.ApiUnavailable, id="timed out"),
        pytest.param(429, {}, errors.ApiUnavailable, id="too many requests"),
        pytest.param(500, {}, errors.ApiUnavailable, id="its own fault"),
        pytest.param(503, {}, errors.ApiUnavailable, id="S50: away"),
        pytest.param(504, {}, errors.ApiUnavailable, id="etcd is slow"),
    ],
)
def test_kinds(status: int, answer: dict[str, Any], kind: type[errors.ApiError]) -> None:
    found = _error(status, answer)
    assert type(found) is kind
    assert str(found) == f"HTTP status {status}"
    assert str(_error(status, {**answer, "message": "because"})) == "because"


@pytest.mark.parametrize(
    ("causes", "managers"),
    [
        pytest.param([HPA], ("hpa",), id="one"),
        pytest.param([KUBECTL, HPA, KUBECTL], ("hpa", "kubectl"), id="two, each once"),
        pytest.param([{**HPA, "message": "?"}], ("another manager",), id="unreadable"),
    ],
)
def test_who_owns_the_field(causes: list[dict[str, str]], managers: tuple[str, ...]) -> None:
    """S21."""
    found = _error(409, {"reason": "Conflict", "details": {"causes": causes}})
    assert isinstance(found, errors.FieldConflict)
    assert found.managers == managers


@pytest.mark.parametrize("answer", [{"details": None}, {"details": {"causes": None}}, {}])
def test_conflicts_without_details(answer: dict[str, Any]) -> None:
    assert type(_error(409, answer)) is errors.StaleVersion
