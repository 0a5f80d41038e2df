"""The CRD as a page that people read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llmqueue.spec import reference

CRD = """
spec:
  group: example.dev
  names: {shortNames: [th], categories: [all]}
  versions:
    - name: v1
      schema:
        openAPIV3Schema:
          description: A thing.
          properties:
            spec:
              description: What you want.
              required: [name]
              x-kubernetes-validations: [{fieldPath: .name, message: must be good}]
              properties:
                name: {type: string, enum: [a, b], description: A | B.}
                few: {type: integer, minimum: 1, maximum: 9, default: 3, description: Some.}
                many: {type: integer, minimum: 0, description: More.}
                inner:
                  type: object
                  default: {}
                  description: Within.
                  properties:
                    list:
                      type: array
                      maxItems: 5
                      description: Several.
                      items:
                        type: object
                        properties: {at: {type: string, format: date-time, description: When.}}
            status:
              description: What is.
              properties: {}
"""


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "crds").mkdir()
    (tmp_path / reference.CRD).write_text(CRD)
    reference.main()
    text = (tmp_path / reference.REFERENCE).read_text()
    wanted: Any = [
        "`example.dev/v1`, namespaced; short name `th`, category `all`.",
        "| `name` | `a`, `b` | required | A \\| B. |",
        "| `few` | integer, 1–9 | `3` | Some. |",
        "| `many` | integer, ≥ 0 |  | More. |",
        "| `inner` | object |  | Within. |",
        "- `name` must be good",
        "## spec.inner\n\nWithin.",
        "| `list` | list of object, at most 5 |  | Several. |",
        "## spec.inner.list[]\n\nSeveral.",
        "| `at` | time |  | When. |",
        "## status\n\nWhat is.",
    ]
    assert [line for line in wanted if line not in text] == []
