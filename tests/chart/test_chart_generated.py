"""What tools/chart.py writes into the chart, and that it is current."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools import chart

from support.checkout import ROOT
from support.rendering import rendered


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy to write into."""
    for path in (chart.CHART, chart.CRD.parent):
        shutil.copytree(ROOT / path, tmp_path / path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("file", [chart.README, chart.CRD_COPY], ids=str)
def test_what_is_committed_is_current(project: Path, file: Path) -> None:
    chart.main()
    assert (ROOT / file).read_text() == (project / file).read_text(), "run `make docs`, commit it"


def test_a_stale_table_is_renewed(project: Path) -> None:
    readme = project / chart.README
    readme.write_text(f"Before\n{chart.BEGIN}\nstale\n{chart.END}\nafter\n")
    (project / chart.CRD_COPY).write_text("stale")
    chart.main()
    text = readme.read_text()
    assert text.startswith(f"Before\n{chart.BEGIN}\n| value |")
    assert text.endswith(f"|\n{chart.END}\nafter\n")
    assert "stale" not in text
    assert (project / chart.CRD_COPY).read_bytes() == (project / chart.CRD).read_bytes()


def test_a_readme_without_a_place_for_it_is_refused() -> None:
    with pytest.raises(ValueError, match="must hold the lines"):
        chart.with_table("nothing here", [])


def test_rows() -> None:
    text = """
    # Not of a value.
    # -- Of a leaf, in
    # two lines.
    leaf: 1
    group:
      # -- Of what is in a | group.
      inner: [a, "b"]
    # -- Of a whole group.
    whole: {a: {b: c}}
    """
    assert chart.table(chart.values(text)).splitlines()[2:] == [
        "| `leaf` | `1` | Of a leaf, in two lines. |",
        '| `group.inner` | `["a", "b"]` | Of what is in a \\| group. |',
        '| `whole` | `{"a": {"b": "c"}}` | Of a whole group. |',
    ]


def test_a_long_default_is_not_repeated() -> None:
    (row,) = chart.values(f"# -- Much.\nlong: {'x' * 100}\n")
    assert chart.table([row]).splitlines()[2] == "| `long` | see values.yaml | Much. |"


@pytest.mark.parametrize("text", ["a: 1", "a:\n  b: 1", "# A remark.\na: {}"])
def test_a_value_without_a_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="has no comment that begins"):
        chart.values(text)


def documented() -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / chart.CRD).read_text()))


def test_the_crd_is_the_documented_one_and_kept() -> None:
    (found,) = [each for each in rendered() if each["kind"] == "CustomResourceDefinition"]
    meta = found.pop("metadata")
    assert meta["annotations"] == {"helm.sh/resource-policy": "keep"}
    expected = documented()
    assert meta["name"] == expected.pop("metadata")["name"]
    assert found == expected


def test_no_crd_where_another_release_has_it() -> None:
    kinds = {each["kind"] for each in rendered("--set=crds.install=false")}
    assert "CustomResourceDefinition" not in kinds
