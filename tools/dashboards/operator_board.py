"""The operator and what it rests on: does anybody plan, and can it?"""

from __future__ import annotations

from collections.abc import Iterator

from grafana_foundation_sdk.builders import dashboard as build

from tools.dashboards.frame import choice, filled, frame
from tools.dashboards.panels import GREEN, RED, YELLOW, Panel, lines, number, rows, states

# Facts of queues have the queue's namespace: the job tells whose operator exported them.
OF = 'job=~"$job", namespace=~"$namespace"'
QUEUES = 'job=~"$job"'
RATE = "[$__rate_interval]"


def operator_board() -> build.Dashboard:
    made = frame(
        "operator",
        "llmqueue / Operator",
        "Operators by the namespace that they run in, and their Redis connections.",
        [
            choice("namespace", "Namespace", "label_values(llmqueue_operator_info, namespace)"),
            choice(
                "job",
                "Operator",
                'label_values(llmqueue_operator_info{namespace=~"$namespace"}, job)',
            ),
        ],
        alerts='namespace=~"$namespace"',
    )
    below = {"Redis": _stores(), "Planning": _planning(), "Process": _process()}
    return filled(made, _answers(), below)


def _answers() -> Iterator[Panel]:
    yield number(
        "Leaders",
        "One for each installation. Without one, the number of workers stands still.",
        f"sum(llmqueue_operator_leading{{{OF}}})",
        steps=((None, RED), (1, GREEN)),
        width=4,
    )
    yield number(
        "Replicas that answer",
        "Operators that could be scraped.",
        f"sum(up{{{OF}}})",
        steps=((None, RED), (1, GREEN)),
        width=4,
    )
    yield number(
        "Redis connections away",
        "Those that can't be reached or used.",
        f"count(max by (namespace, connection) (llmqueue_store_up{{{OF}}}) == 0) or vector(0)",
        steps=((None, GREEN), (1, RED)),
        width=4,
    )
    yield number(
        "Longest not planned",
        "Each queue is planned at least every ten seconds.",
        f"max(llmqueue_planned_age_seconds{{{QUEUES}}})",
        unit="s",
        steps=((None, GREEN), (30, YELLOW), (120, RED)),
        width=4,
    )
    yield number(
        "Failed reconciles",
        "Within the shown time. Each is tried again.",
        f'sum(increase(llmqueue_operator_reconciles_total{{{OF}, result="failed"}}[$__range]))'
        " or vector(0)",
        steps=((None, GREEN), (1, YELLOW)),
        width=4,
    )
    yield number(
        "LLMQueues",
        "Those that the operators know.",
        f'count(max by (namespace, queue) (llmqueue_condition{{{QUEUES}, type="Ready"}}))',
        width=4,
    )


def _stores() -> Iterator[Panel]:
    by = "max by (namespace, connection, reason)"
    yield states(
        "Connections",
        "Unreachable may pass; misconfigured and refused need a person.",
        f"{by} (llmqueue_store_problem{{{OF}}})",
        "{{connection}} {{reason}}",
        {"0": ("no", GREEN), "1": ("yes", RED)},
    )
    yield lines(
        "Warnings",
        "What endangers or slows jobs in a Redis, such as no append-only file. The operator's log"
        " has the sentences.",
        {"{{connection}}": f"max by (namespace, connection) (llmqueue_store_warnings{{{OF}}})"},
        width=6,
        height=7,
    )
    yield lines(
        "Resets",
        "How often a Redis lost what was in it.",
        {"resets": f"sum(increase(llmqueue_store_resets_total{{{QUEUES}}}{RATE}))"},
        width=6,
        height=7,
    )


def _planning() -> Iterator[Panel]:
    took = f"rate(llmqueue_operator_reconcile_duration_seconds_bucket{{{OF}}}{RATE})"
    yield lines(
        "Reconciles a minute",
        "By result; refused: by a replica that leads no more.",
        {
            "{{result}}": "60 * sum by (result)"
            f" (rate(llmqueue_operator_reconciles_total{{{OF}}}{RATE}))"
        },
        stacked=True,
    )
    yield lines(
        "Time of a reconcile",
        "To plan and apply one budget.",
        {f"p{q}": f"histogram_quantile({q / 100}, sum by (le) ({took}))" for q in (50, 99)},
        unit="s",
    )
    yield lines(
        "Not planned for",
        "The queue that waits longest.",
        {"longest": f"max(llmqueue_planned_age_seconds{{{QUEUES}}})"},
        unit="s",
        steps=((None, "transparent"), (120, RED)),
    )
    yield lines(
        "Pods that went unasked",
        "Worker pods that no plan had chosen: evictions, lost nodes, somebody's hand.",
        {"pods": f"sum(increase(llmqueue_unplanned_removals_total{{{QUEUES}}}{RATE}))"},
        width=12,
    )
    yield lines(
        "Conditions that do not hold",
        "Number of queues by condition. The two conflicts are counted while they last.",
        {
            "{{type}}": "sum by (type) (max by (namespace, queue, type) (llmqueue_condition{"
            f'{QUEUES}, type!~".+Conflict"}}) == bool 0)',
            "conflicts": "sum(max by (namespace, queue, type) (llmqueue_condition{"
            f'{QUEUES}, type=~".+Conflict"}})) or vector(0)',
        },
        width=12,
    )


def _process() -> Iterator[Panel]:
    yield rows(
        "Operators",
        "Version and role by pod.",
        (
            ("", f"max by (namespace, pod, version) (llmqueue_operator_info{{{OF}}})", "none"),
            ("Leads", f"max by (namespace, pod) (llmqueue_operator_leading{{{OF}}})", "none"),
        ),
        names={"namespace": "Namespace", "pod": "Pod", "version": "Version"},
        words={"Leads": {"1": ("yes", GREEN), "0": ("waits", "blue")}},
        width=8,
        height=7,
    )
    yield lines(
        "Memory",
        "By pod; the chart's limit is 512 MiB.",
        {"{{pod}}": f"max by (pod) (process_resident_memory_bytes{{{OF}}})"},
        unit="bytes",
        height=7,
    )
    yield lines(
        "CPU",
        "Cores by pod.",
        {"{{pod}}": f"sum by (pod) (rate(process_cpu_seconds_total{{{OF}}}{RATE}))"},
        height=7,
    )
