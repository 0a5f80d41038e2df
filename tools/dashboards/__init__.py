"""Grafana's dashboards → charts/llmqueue/dashboards: `python -m tools.dashboards` in the project
root."""
