"""Changing limits of a running simulation."""

from __future__ import annotations

import pytest

from llmqueue_cli.simulate.control import changed_limits
from llmqueue_cli.simulate.limits import Limits


@pytest.mark.parametrize(
    ("body", "limits"),
    [
        pytest.param(b"{}", Limits(60, 1000), id="nothing"),
        pytest.param(b'{"rpm": 30}', Limits(30, 1000), id="one"),
        pytest.param(b'{"tpm": null, "itpm": 5, "otpm": 6}', Limits(60, None, 5, 6), id="others"),
    ],
)
def test_only_what_is_named_changes(body: bytes, limits: Limits) -> None:
    assert changed_limits(Limits(60, 1000), body) == limits


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"[]", "object"),
        (b'{"rps": 1}', "unknown limit 'rps'; known: rpm, tpm"),
        (b'{"rpm": "60"}', "rpm: a whole number"),
        (b'{"rpm": true}', "rpm: a whole number"),
        (b'{"rpm": -1}', "negative"),
    ],
)
def test_a_wrong_change_is_an_error_that_says_why(body: bytes, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        changed_limits(Limits(60), body)
