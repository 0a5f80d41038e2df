"""All queues: which one needs a person, and why."""

from __future__ import annotations

from collections.abc import Iterator

from grafana_foundation_sdk.builders import dashboard as build

from tools.dashboards.frame import QUEUES, filled, frame, queue_choices
from tools.dashboards.panels import (
    GREEN,
    RED,
    YELLOW,
    YES_NO,
    Panel,
    lines,
    number,
    rows,
    states,
)

PER_QUEUE = "max by (namespace, queue)"


def overview() -> build.Dashboard:
    made = frame(
        "overview",
        "llmqueue / Overview",
        "All queues: is it working, what binds, when is it done.",
        queue_choices(),
        alerts='namespace=~"$namespace"',
    )
    below = {"Jobs": _jobs(), "Provider and workers": _provider()}
    return filled(made, (*_answers(), _table(), *_reasons()), below)


def _answers() -> Iterator[Panel]:
    waiting = f'{PER_QUEUE} (llmqueue_jobs{{{QUEUES}, state="ready"}})'
    rate = f'sum(rate(llmqueue_calls_total{{{QUEUES}, outcome=~"RATE|RAMP"}}[$__rate_interval]))'
    yield number(
        "Queues not ready",
        "LLMQueues whose condition Ready is false. The table says which and why.",
        f'count({PER_QUEUE} (llmqueue_condition{{{QUEUES}, type="Ready"}}) == 0) or vector(0)',
        steps=((None, GREEN), (1, RED)),
    )
    yield number(
        "Alerts",
        "Firing alerts of llmqueue in these namespaces.",
        'count(ALERTS{alertname=~"LLMQueue.+", alertstate="firing", namespace=~"$namespace"})'
        " or vector(0)",
        steps=((None, GREEN), (1, RED)),
    )
    yield number("Jobs waiting", "Ready jobs of all queues.", f"sum({waiting})")
    yield number(
        "All done in",
        "The longest time that a backlog needs at its present rate. Queues without a forecast are"
        " not in it.",
        f"max(llmqueue_eta_seconds{{{QUEUES}}})",
        unit="dtdurations",
        absent="not known",
    )
    yield number(
        "Oldest job",
        "How long the oldest ready job has waited.",
        f"max(llmqueue_oldest_ready_seconds{{{QUEUES}}})",
        unit="dtdurations",
    )
    yield number(
        "Calls a minute",
        "Calls to providers that came to an end.",
        f"60 * sum(rate(llmqueue_calls_total{{{QUEUES}}}[$__rate_interval]))",
        unit="cpm",
    )
    yield number(
        "Answered with 429",
        "Share of the calls. Above half for long, the provider allows less than is declared.",
        f"({rate} or vector(0)) / sum(rate(llmqueue_calls_total{{{QUEUES}}}[$__rate_interval]))",
        unit="percentunit",
        steps=((None, GREEN), (0.1, YELLOW), (0.5, RED)),
    )
    yield number(
        "Dead letters",
        "Jobs that died within the shown time.",
        f"sum(increase(llmqueue_dead_letters_total{{{QUEUES}}}[$__range]))",
        steps=((None, GREEN), (1, YELLOW)),
    )


def _table() -> Panel:
    flying = f"max by (namespace, queue, band) (llmqueue_jobs_in_flight{{{QUEUES}}})"
    columns = (
        ("Ready", f'{PER_QUEUE} (llmqueue_condition{{{QUEUES}, type="Ready"}})', "none"),
        ("", f"max by (namespace, queue, limit) (llmqueue_bound_by{{{QUEUES}}})", "none"),
        ("Waiting", f'{PER_QUEUE} (llmqueue_jobs{{{QUEUES}, state="ready"}})', "short"),
        ("In flight", f"sum by (namespace, queue) ({flying})", "short"),
        ("Workers", f"{PER_QUEUE} (llmqueue_workers_actual{{{QUEUES}}})", "short"),
        ("Desired", f"{PER_QUEUE} (llmqueue_workers_desired{{{QUEUES}}})", "short"),
        (
            "Calls a minute",
            f"60 * sum by (namespace, queue) (rate(llmqueue_calls_total{{{QUEUES}}}[5m]))",
            "cpm",
        ),
        ("Oldest", f"{PER_QUEUE} (llmqueue_oldest_ready_seconds{{{QUEUES}}})", "dtdurations"),
        ("Done in", f"{PER_QUEUE} (llmqueue_eta_seconds{{{QUEUES}}})", "dtdurations"),
    )
    return rows(
        "Queues",
        "One line a queue. Bound by is what keeps the number of workers from being higher.",
        columns,
        names={"namespace": "Namespace", "queue": "Queue", "limit": "Bound by"},
        words={"Ready": YES_NO},
    )


def _reasons() -> Iterator[Panel]:
    conditions = f'llmqueue_condition{{{QUEUES}, type!~".+Conflict"}}'
    yield states(
        "Conditions",
        "What is as it should be, by queue. `kubectl describe llmqueue` has reasons of red ones.",
        f"min by (namespace, queue, type) ({conditions})",
        "{{namespace}}/{{queue}} {{type}}",
        YES_NO,
    )
    yield states(
        "What binds",
        "What limits the number of workers. Backlog and Idle: nothing does, all jobs have a place.",
        f"max by (namespace, queue, limit) (llmqueue_bound_by{{{QUEUES}}})",
        "{{namespace}}/{{queue}} {{limit}}",
        {"1": ("binds", "blue")},
    )


def _jobs() -> Iterator[Panel]:
    name = "{{namespace}}/{{queue}}"
    yield lines(
        "Jobs waiting",
        "Ready jobs.",
        {name: f'{PER_QUEUE} (llmqueue_jobs{{{QUEUES}, state="ready"}})'},
        stacked=True,
    )
    yield lines(
        "Age of the oldest job",
        "Of those that are ready. It grows with a backlog; without one a queue does not move.",
        {name: f"{PER_QUEUE} (llmqueue_oldest_ready_seconds{{{QUEUES}}})"},
        unit="s",
    )
    wait = f"rate(llmqueue_queue_wait_seconds_bucket{{{QUEUES}}}[$__rate_interval])"
    yield lines(
        "Wait before the call, p95",
        "From being ready to the grant.",
        {name: f"histogram_quantile(0.95, sum by (namespace, queue, le) ({wait}))"},
        unit="s",
    )
    ended = f"rate(llmqueue_jobs_ended_total{{{QUEUES}}}[$__rate_interval])"
    yield lines(
        "Jobs ended a minute",
        "By how they ended.",
        {"{{state}}": f"60 * sum by (state) ({ended})"},
        unit="short",
        stacked=True,
    )
    yield lines(
        "Filled",
        "Share of queue.maxJobs that is used. At 1 enqueue is refused.",
        {
            name: "sum by (namespace, queue) (max by (namespace, queue, state) (llmqueue_jobs{"
            f'{QUEUES}, state=~"ready|delayed|leased|sent|review"}}))'
            f" / {PER_QUEUE} (llmqueue_jobs_limit{{{QUEUES}}})"
        },
        unit="percentunit",
        steps=((None, "transparent"), (0.8, YELLOW), (1, RED)),
    )
    yield lines(
        "In review",
        "Jobs that wait for a person to decide, since their call may have been paid.",
        {name: f'{PER_QUEUE} (llmqueue_jobs{{{QUEUES}, state="review"}})'},
    )


def _provider() -> Iterator[Panel]:
    name = "{{namespace}}/{{queue}}"
    calls = f"rate(llmqueue_calls_total{{{QUEUES}}}[$__rate_interval])"
    took = f"rate(llmqueue_call_duration_seconds_bucket{{{QUEUES}}}[$__rate_interval])"
    yield lines(
        "Calls a minute",
        "Calls that came to an end, by queue.",
        {name: f"60 * sum by (namespace, queue) ({calls})"},
        unit="cpm",
        stacked=True,
    )
    yield lines(
        "Outcomes a minute",
        "RATE and RAMP are 429s. UNKNOWN may have been paid without a result.",
        {"{{outcome}}": f"60 * sum by (outcome) ({calls})"},
        unit="cpm",
        stacked=True,
    )
    yield lines(
        "Time of a call, p95",
        "Calls that were sent.",
        {name: f"histogram_quantile(0.95, sum by (namespace, queue, le) ({took}))"},
        unit="s",
    )
    yield lines(
        "Workers",
        "Those that take jobs.",
        {name: f"{PER_QUEUE} (llmqueue_workers_actual{{{QUEUES}}})"},
        width=12,
    )
    yield lines(
        "Workers that are missing",
        "Wanted and not there. A moment after a change is normal.",
        {
            name: f"clamp_min({PER_QUEUE} (llmqueue_workers_desired{{{QUEUES}}})"
            f" - {PER_QUEUE} (llmqueue_workers_actual{{{QUEUES}}}), 0)"
        },
        width=12,
    )
