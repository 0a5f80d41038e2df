"""What all dashboards have: variables, links to each other, the alerts as annotations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import dashboard

from tools.dashboards.panels import DATASOURCE, Panel

TAG = "llmqueue"
QUEUES = 'namespace=~"$namespace", queue=~"$queue"'
"""Chosen queues."""


def datasource() -> build.DatasourceVariable:
    return build.DatasourceVariable("datasource").label("Prometheus").type("prometheus")


def choice(name: str, label: str, values: str, *, several: bool = True) -> build.QueryVariable:
    """`values`: an expression for label values."""
    variable = build.QueryVariable(name).label(label).datasource(DATASOURCE).query(values)
    variable.refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
    variable.sort(dashboard.VariableSort.ALPHABETICAL_ASC)
    if several:  # all of those that are listed, not whatever else has the label
        variable.multi(True).include_all(True)
        variable.current(dashboard.VariableOption(text="All", value="$__all", selected=True))
    return variable


def queue_choices(*, several: bool = True) -> list[build.QueryVariable]:
    """Variables `namespace` and `queue`."""
    namespaces = "label_values(llmqueue_jobs_limit, namespace)"
    queues = 'label_values(llmqueue_jobs_limit{namespace=~"$namespace"}, queue)'
    return [
        choice("namespace", "Namespace", namespaces, several=several),
        choice("queue", "Queue", queues, several=several),
    ]


def frame(
    uid: str,
    title: str,
    text: str,
    variables: Sequence[build.QueryVariable],
    *,
    alerts: str,
) -> build.Dashboard:
    """A dashboard without panels. `alerts`: matchers of the alerts that are marked in it."""
    made = build.Dashboard(title).uid(f"llmqueue-{uid}").description(text).tags([TAG])
    made.timezone("browser").time("now-3h", "now").refresh("30s").readonly()
    made.tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
    made.with_variable(datasource())
    for variable in variables:
        made.with_variable(variable)
    made.annotation(
        build.AnnotationQuery()
        .name("Alerts")
        .datasource(DATASOURCE)
        .enable(True)
        .icon_color("red")
        .expr(f'ALERTS{{alertname=~"LLMQueue.+", alertstate="firing", {alerts}}}')
    )
    others = build.DashboardLink("llmqueue").type(dashboard.DashboardLinkType.DASHBOARDS)
    return made.link(others.tags([TAG]).include_vars(True).keep_time(True))


def filled(
    made: build.Dashboard, first: Iterable[Panel], rows: Mapping[str, Iterable[Panel]]
) -> build.Dashboard:
    """The dashboard with panels: what answers first, then rows by title."""
    for panel in first:
        made.with_panel(panel)
    for title, panels in rows.items():
        made.with_row(build.Row(title))
        for panel in panels:
            made.with_panel(panel)
    return made
