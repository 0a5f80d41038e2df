"""What of charts/llmqueue is written by other files: `python -m tools.chart` in the project root.

README.md's table comes from the comments in values.yaml that begin with `# --`; the CRD below
files/ is a copy, since a chart can't hold what lies above it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CHART = Path("charts/llmqueue")
CRD = Path("crds/llmqueues.llmqueue.dev.yaml")
CRD_COPY = CHART / "files" / CRD.name
README = CHART / "README.md"
BEGIN = "<!-- Written by `make docs` from the comments in values.yaml. -->"
END = "<!-- End of what is written. -->"
_LONGEST_DEFAULT = 80


@dataclass(frozen=True, slots=True)
class Value:
    """One row: `path` with dots, `default` as it would be given."""

    path: str
    default: str
    text: str


def values(text: str) -> list[Value]:
    """Raises ValueError where a value has no text, neither itself nor what it is in."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode):
        raise ValueError("values must be a mapping")
    return list(_described(root, text.splitlines(), ""))


def _described(mapping: yaml.MappingNode, lines: list[str], above: str) -> Iterator[Value]:
    for key, node in mapping.value:
        path = f"{above}{key.value}"
        text = _comment(lines, key.start_mark.line)
        if text:
            yield Value(path, _shown(node), text)
        elif isinstance(node, yaml.MappingNode) and node.value:
            yield from _described(node, lines, f"{path}.")
        else:
            raise ValueError(f"{path} has no comment that begins with '# --'")


def _comment(lines: list[str], at: int) -> str:
    """What stands right above a line, from `# --` on."""
    found: list[str] = []
    while at > 0 and (line := lines[at - 1].strip()).startswith("#"):
        at -= 1
        if line.startswith("# -- "):
            return " ".join([line.removeprefix("# -- "), *reversed(found)])
        found.append(line.removeprefix("#").strip())
    return ""


def _shown(node: yaml.Node) -> str:
    shown = json.dumps(_plain(node), ensure_ascii=False)
    return shown if len(shown) <= _LONGEST_DEFAULT else "see values.yaml"


def _plain(node: yaml.Node) -> Any:
    """What safe_load makes of it."""
    loader: Any = yaml.SafeLoader("")
    try:
        return loader.construct_object(node, deep=True)
    finally:
        loader.dispose()


def table(rows: list[Value]) -> str:
    lines = ["| value | default | |", "|---|---|---|"]
    for row in rows:
        shown = row.default if row.default == "see values.yaml" else f"`{row.default}`"
        lines.append(f"| `{row.path}` | {shown} | {row.text.replace('|', chr(92) + '|')} |")
    return "\n".join(lines)


def with_table(readme: str, rows: list[Value]) -> str:
    """Raises ValueError where the marks are missing."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{README} must hold the lines {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n{table(rows)}\n{END}{after}"


def main() -> None:
    rows = values((CHART / "values.yaml").read_text(encoding="utf-8"))
    README.write_text(with_table(README.read_text(encoding="utf-8"), rows), encoding="utf-8")
    CRD_COPY.write_bytes(CRD.read_bytes())


if __name__ == "__main__":
    main()
