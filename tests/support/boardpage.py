"""The dashboards as one HTML page, without Grafana: values, curves and states for a quick look.

PYTHONPATH=tests python -m support.boardpage http://127.0.0.1:9090 namespace=team queue=summaries >page.html
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

from support.dashboards import boards, filled, panels

_COLOURS = ("#3b78c4", "#d9822b", "#3f9b57", "#8e5bb5", "#c4453b", "#2b9aa8", "#8a6d3b", "#777")
_POINTS = 120
_STYLE = """
body{font:13px system-ui;margin:16px;background:#f4f5f7;color:#222}h2{grid-column:span 24;margin:8px 0 0}
.g{display:grid;grid-template-columns:repeat(24,1fr);gap:6px}.p{background:#fff;border:1px solid #ddd;
padding:6px;overflow:hidden}.p b{font-size:12px}.v{font-size:24px;margin-top:6px}.l{font-size:11px}
td,th{padding:1px 8px;text-align:left;border-bottom:1px solid #eee}.none{color:#c4453b}
"""


class Prometheus:
    """Its API over the last `seconds`."""

    def __init__(self, url: str, seconds: float) -> None:
        self._url, self._seconds, self._now = url.rstrip("/"), seconds, time.time()

    def _ask(self, what: str, **parameters: object) -> list[dict[str, Any]]:
        with urlopen(f"{self._url}/api/v1/{what}?{urlencode(parameters)}", timeout=30) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return found

    def curves(self, expr: str) -> list[tuple[dict[str, str], list[float]]]:
        """Labels and values, NaN where there is none."""
        step = max(1.0, self._seconds / _POINTS)
        start = self._now - step * (_POINTS - 1)
        found = self._ask("query_range", query=expr, start=start, end=self._now, step=step)
        curves: list[tuple[dict[str, str], list[float]]] = []
        for series in found:
            values = [math.nan] * _POINTS
            for moment, value in series["values"]:
                values[min(_POINTS - 1, round((moment - start) / step))] = float(value)
            curves.append((series["metric"], values))
        return curves

    def now(self, expr: str) -> list[tuple[dict[str, str], float]]:
        return [
            (s["metric"], float(s["value"][1]))
            for s in self._ask("query", query=expr, time=self._now)
        ]


def shown(value: float, unit: str) -> str:
    """A value in its unit, near enough."""
    if math.isnan(value):
        return "–"
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    if unit == "currencyUSD":
        return f"${value:,.4g}"
    if unit == "bytes":
        return f"{value / 2**20:,.0f} MiB"
    if unit in ("s", "dtdurations") and value >= 120:
        return f"{value / 3600:.1f} h" if value >= 7200 else f"{value / 60:.1f} min"
    return f"{value:,.4g}" + {"s": " s", "dtdurations": " s", "cpm": " /min"}.get(unit, "")


def _words(panel: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    mappings = panel["fieldConfig"]["defaults"].get("mappings") or [{"options": {}}]
    return dict(mappings[0]["options"])


def _legend(template: str, labels: Mapping[str, str]) -> str:
    for name, value in labels.items():
        template = template.replace(f"{{{{{name}}}}}", value)
    return template or "value"


def _last(values: Sequence[float]) -> float:
    return next((v for v in reversed(values) if not math.isnan(v)), math.nan)


def _curve(values: Sequence[float], top: float, colour: str, height: int) -> str:
    points = " ".join(
        f"{x * 300 / _POINTS:.1f},{height - 2 - (height - 4) * v / top:.1f}"
        for x, v in enumerate(values)
        if math.isfinite(v)
    )
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'


def _svg(content: str, height: int) -> str:
    return f'<svg viewBox="0 0 300 {height}" width="100%" height="{height}" preserveAspectRatio="none">{content}</svg>'


def _stat(panel: Mapping[str, Any], data: list[tuple[str, list[float]]]) -> str:
    by_name = panel["options"]["textMode"] == "name"
    parts: list[str] = []
    for (name, values), _ in zip(data, range(3), strict=False):
        word = _words(panel).get(f"{_last(values):g}", {})
        value = shown(_last(values), panel["fieldConfig"]["defaults"]["unit"])
        colour = word.get("color", "#222")
        parts.append(
            f'<div class="v" style="color:{colour}">{escape(name if by_name else word.get("text", value))}</div>'
        )
        top = max((v for v in values if math.isfinite(v)), default=0) or 1
        parts.append("" if by_name or word else _svg(_curve(values, top, "#9bb", 24), 24))
    return "".join(parts)


def _lines(panel: Mapping[str, Any], data: list[tuple[str, list[float]]]) -> str:
    top = max((v for _, values in data for v in values if math.isfinite(v)), default=0) or 1
    unit = panel["fieldConfig"]["defaults"]["unit"]
    coloured = list(zip(data, _COLOURS * 20, strict=False))
    drawn = _svg("".join(_curve(values, top, c, 110) for (_, values), c in coloured), 110)
    legend = "".join(
        f'<span style="color:{c}">■</span> {escape(name)} {shown(_last(values), unit)} &nbsp; '
        for (name, values), c in coloured[:12]
    )
    return f'<div class="l">to {shown(top, unit)}</div>{drawn}<div class="l">{legend}</div>'


def _states(panel: Mapping[str, Any], data: list[tuple[str, list[float]]]) -> str:
    found: list[str] = []
    for name, values in data[:14]:
        marks = "".join(
            f'<rect x="{x * 300 / _POINTS:.1f}" width="2.6" height="10" fill="{colour}"/>'
            for x, value in enumerate(values)
            if not math.isnan(value)
            for colour in [_words(panel).get(f"{value:g}", {}).get("color", "#999")]
        )
        found.append(f'<div class="l">{escape(name)}{_svg(marks, 10)}</div>')
    return "".join(found)


def _table(panel: Mapping[str, Any], prometheus: Prometheus, values: Mapping[str, str]) -> str:
    organize = panel["transformations"][1]["options"]
    names, hidden = organize["renameByName"], organize["excludeByName"]
    units = {
        o["matcher"]["options"]: o["properties"][0]["value"]
        for o in panel["fieldConfig"]["overrides"]
    }
    lines: dict[tuple[str, ...], dict[str, str]] = {}
    keys = [label for label in ("namespace", "queue", "pod", "model") if label in names] or [
        "limit"
    ]
    for target in panel["targets"]:
        column = f"Value #{target['refId']}"
        for labels, value in prometheus.now(filled(target["expr"], values)):
            line = lines.setdefault(tuple(labels.get(k, "") for k in keys), {})
            line |= {names[label]: text for label, text in labels.items() if label in names}
            if column not in hidden:
                line[names[column]] = shown(value, units[names[column]])
    heads = [names[field] for field in sorted(names, key=organize["indexByName"].__getitem__)]
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(line.get(h, ''))}</td>" for h in heads)
        for line in lines.values()
    )
    return (
        f"<table><tr>{''.join(f'<th>{escape(h)}</th>' for h in heads)}</tr>{body}</table>"
        if lines
        else ""
    )


def _panel(panel: Mapping[str, Any], prometheus: Prometheus, values: Mapping[str, str]) -> str:
    if panel["type"] == "table":
        return _table(panel, prometheus, values)
    data: list[tuple[str, list[float]]] = []
    for target in panel["targets"]:
        for labels, curve in prometheus.curves(filled(target["expr"], values)):
            data.append((_legend(target.get("legendFormat", ""), labels), curve))
        if target.get("instant"):  # a curve may end in values that are over
            data = [(name, curve) for name, curve in data if not math.isnan(curve[-1])]
    draw = {"stat": _stat, "timeseries": _lines, "state-timeline": _states}
    return draw[panel["type"]](panel, data) if data else ""


def page(url: str, variables: Mapping[str, str], *, seconds: float = 600) -> str:
    """`variables` as for `dashboards.queries`."""
    prometheus = Prometheus(url, seconds)
    parts: Iterable[str] = (
        f"<h1>{escape(board['title'])}</h1><div class=g>"
        + "".join(
            f'<div class=p style="grid-column:span {p["gridPos"]["w"]}"><b>{escape(p["title"])}</b>'
            f"{_panel(p, prometheus, variables) or '<div class=none>no data</div>'}</div>"
            for p in panels(board)
        )
        + "</div>"
        for board in boards().values()
    )
    return f"<!doctype html><meta charset=utf-8><style>{_STYLE}</style>{''.join(parts)}"


if __name__ == "__main__":
    print(page(sys.argv[1], dict(each.split("=", 1) for each in sys.argv[2:])))
