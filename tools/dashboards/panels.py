"""Panels as all dashboards have them: the defaults of Grafana's builders that we do not share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from grafana_foundation_sdk.builders import common as looks
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders import (
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

DATASOURCE = dashboard.DataSourceRef(type_val="prometheus", uid="${datasource}")
GREEN, YELLOW, RED, BLUE = "green", "yellow", "red", "blue"
SCRAPE_INTERVAL = "30s"
"""The chart's default. Grafana supposes 15 s unless its data source says otherwise, and rates would
be over a minute then: two samples, of which none may be late."""
Steps = Sequence[tuple[float | None, str]]
"""From which value on which colour; the first one has None."""
NEUTRAL: Steps = ((None, BLUE),)
YES_NO = {"1": ("yes", GREEN), "0": ("no", RED)}
Panel = Builder[dashboard.Panel]
_Panel = TypeVar("_Panel", stat.Panel, timeseries.Panel, statetimeline.Panel)


def query(expr: str, legend: str = "", *, ref: str = "A") -> prometheus.Dataquery:
    """Over the dashboard's time."""
    return _dataquery(expr, ref).legend_format(legend).range()


def _dataquery(expr: str, ref: str) -> prometheus.Dataquery:
    made = prometheus.Dataquery().datasource(DATASOURCE).expr(" ".join(expr.split()))
    return made.ref_id(ref).interval(SCRAPE_INTERVAL)


def thresholds(steps: Steps) -> build.ThresholdsConfig:
    made = [dashboard.Threshold(value=value, color=color) for value, color in steps]
    return build.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(made)


def mapping(words: Mapping[str, tuple[str, str]]) -> list[dashboard.ValueMapping]:
    """Value → word and colour."""
    options = {
        value: dashboard.ValueMappingResult(text=text, color=color, index=index)
        for index, (value, (text, color)) in enumerate(words.items())
    }
    return [dashboard.ValueMap(options=options)]


def _common(panel: _Panel, title: str, text: str, unit: str, size: tuple[int, int]) -> _Panel:
    width, height = size
    panel.title(title).description(text).datasource(DATASOURCE).unit(unit)
    return panel.span(width).height(height)


def number(
    title: str,
    text: str,
    expr: str,
    *,
    unit: str = "short",
    steps: Steps = NEUTRAL,
    words: Mapping[str, tuple[str, str]] | None = None,
    name: str = "",
    absent: str = "–",
    width: int = 3,
) -> stat.Panel:
    """The last value, large. `name`: this legend is shown in place of the value."""
    mode = common.BigValueTextMode.NAME if name else common.BigValueTextMode.VALUE
    graph = common.BigValueGraphMode.NONE if name or words else common.BigValueGraphMode.AREA
    last = looks.ReduceDataOptions().calcs(["lastNotNull"]).values(False).fields("")
    panel = _common(stat.Panel(), title, text, unit, (width, 4))
    panel.with_target(_dataquery(expr, "A").legend_format(name).instant() if name else query(expr))
    panel.thresholds(thresholds(steps)).color_scheme(
        build.FieldColor().mode(dashboard.FieldColorModeId.THRESHOLDS)
    )
    filled, plain = common.BigValueColorMode.BACKGROUND, common.BigValueColorMode.VALUE
    panel.color_mode(filled if words else plain)
    panel.mappings(mapping(words or {})).no_value(absent)
    return panel.text_mode(mode).graph_mode(graph).reduce_options(last)


def lines(
    title: str,
    text: str,
    queries: Mapping[str, str],
    *,
    unit: str = "short",
    stacked: bool = False,
    steps: Steps | None = None,
    width: int = 8,
    height: int = 8,
) -> timeseries.Panel:
    """`queries`: legend → expression. `steps` are drawn as lines."""
    panel = _common(timeseries.Panel(), title, text, unit, (width, height))
    for index, (legend, expr) in enumerate(queries.items()):
        panel.with_target(query(expr, legend, ref=chr(ord("A") + index)))
    shown = looks.VizLegendOptions().display_mode(common.LegendDisplayMode.TABLE)
    shown.placement(common.LegendPlacement.BOTTOM).show_legend(True).calcs(["lastNotNull", "max"])
    tooltip = looks.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI)
    tooltip.sort(common.SortOrder.DESCENDING)
    panel.legend(shown).tooltip(tooltip).min(0).line_width(1)
    panel.fill_opacity(40 if stacked else 8).show_points(common.VisibilityMode.NEVER)
    if stacked:
        panel.stacking(looks.StackingConfig().mode(common.StackingMode.NORMAL))
    if steps is not None:
        drawn = looks.GraphThresholdsStyleConfig().mode(common.GraphThresholdsStyleMode.DASHED)
        panel.thresholds(thresholds(steps)).thresholds_style(drawn)
    return panel


def states(
    title: str,
    text: str,
    expr: str,
    legend: str,
    words: Mapping[str, tuple[str, str]],
    *,
    width: int = 12,
    height: int = 7,
) -> statetimeline.Panel:
    """What held when; a line for each series."""
    panel = _common(statetimeline.Panel(), title, text, "short", (width, height))
    panel.with_target(query(expr, legend)).mappings(mapping(words)).merge_values(True)
    panel.show_value(common.VisibilityMode.NEVER).row_height(0.8).fill_opacity(80)
    shown = looks.VizLegendOptions().display_mode(common.LegendDisplayMode.LIST)
    shown.placement(common.LegendPlacement.BOTTOM).show_legend(True)
    return panel.legend(shown)


def rows(
    title: str,
    text: str,
    columns: Sequence[tuple[str, str, str]],
    *,
    names: Mapping[str, str],
    words: Mapping[str, Mapping[str, tuple[str, str]]] | None = None,
    width: int = 24,
    height: int = 9,
) -> table.Panel:
    """A line for each set of labels. `columns`: header, expression, unit; `names`: label → header.

    They stand in this order, labels first. A column without a header brings a label only.
    """
    panel = table.Panel().title(title).description(text).datasource(DATASOURCE)
    panel.span(width).height(height)
    renamed, hidden = dict(names), {"Time": True}
    for index, (header, expr, unit) in enumerate(columns):
        ref = chr(ord("A") + index)
        panel.with_target(_dataquery(expr, ref).instant().format(PromQueryFormat.TABLE))
        if not header:
            hidden[f"Value #{ref}"] = True
            continue
        renamed[f"Value #{ref}"] = header
        properties = [dashboard.DynamicConfigValue(id_val="unit", value=unit)]
        if words and header in words:
            properties += [
                dashboard.DynamicConfigValue(id_val="mappings", value=mapping(words[header])),
                dashboard.DynamicConfigValue(
                    id_val="custom.cellOptions", value={"type": "color-background", "mode": "basic"}
                ),
            ]
        panel.override_by_name(header, properties)
    panel.with_transformation(dashboard.DataTransformerConfig(id_val="merge", options={}))
    order = {field: index for index, field in enumerate(renamed)}
    organize = {"excludeByName": hidden, "indexByName": order, "renameByName": renamed}
    panel.with_transformation(dashboard.DataTransformerConfig(id_val="organize", options=organize))
    return panel
