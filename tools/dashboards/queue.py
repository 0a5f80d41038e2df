"""One queue: is it working, what binds, when is it done, and where the time goes."""

from __future__ import annotations

from collections.abc import Iterator

from grafana_foundation_sdk.builders import dashboard as build

from tools.dashboards.frame import filled, frame, queue_choices
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

ONE = 'namespace="$namespace", queue="$queue"'
RATE = "[$__rate_interval]"


def queue() -> build.Dashboard:
    made = frame(
        "queue",
        "llmqueue / Queue",
        "One queue: is it working, what binds, when is it done.",
        queue_choices(several=False),
        alerts='namespace="$namespace", queue=~"$queue|"',
    )
    below = {"Limits and provider": _limits(), "Jobs": _jobs(), "Workers": _workers()}
    return filled(made, (*_answers(), *_reasons()), below)


def _answers() -> Iterator[Panel]:
    yield number(
        "Ready",
        "Jobs are handed out, or would be. If not, the conditions below say why.",
        f'max(llmqueue_condition{{{ONE}, type="Ready"}})',
        words=YES_NO,
    )
    yield number(
        "Bound by",
        "What keeps the number of workers from being higher. Backlog, Idle: nothing does.",
        f"max by (limit) (llmqueue_bound_by{{{ONE}}})",
        name="{{limit}}",
    )
    yield number(
        "Done in",
        "When the backlog is done at the present rate.",
        f"max(llmqueue_eta_seconds{{{ONE}}})",
        unit="dtdurations",
        absent="not known",
    )
    yield number("Waiting", "Ready jobs.", f'max(llmqueue_jobs{{{ONE}, state="ready"}})')
    yield number(
        "In flight",
        "Jobs that workers hold.",
        f"sum(max by (band) (llmqueue_jobs_in_flight{{{ONE}}}))",
    )
    yield number(
        "Oldest job",
        "How long the oldest ready job has waited.",
        f"max(llmqueue_oldest_ready_seconds{{{ONE}}})",
        unit="dtdurations",
    )
    yield number(
        "Calls a minute",
        "Calls that came to an end.",
        f"60 * sum(rate(llmqueue_calls_total{{{ONE}}}{RATE}))",
        unit="cpm",
    )
    yield number(
        "Dead letters",
        "Jobs that died within the shown time.",
        f"sum(increase(llmqueue_dead_letters_total{{{ONE}}}[$__range]))",
        steps=((None, GREEN), (1, YELLOW)),
    )


def _reasons() -> Iterator[Panel]:
    yield states(
        "Conditions",
        "Green is as it should be. Of red ones the reason stands in the legend.",
        f'min by (type, reason) (llmqueue_condition{{{ONE}, type!~".+Conflict"}})',
        "{{type}}: {{reason}}",
        YES_NO,
    )
    yield states(
        "What binds",
        "What limits the number of workers.",
        f"max by (limit) (llmqueue_bound_by{{{ONE}}})",
        "{{limit}}",
        {"1": ("binds", "blue")},
    )


def _limits() -> Iterator[Panel]:
    kept = "max by (limit) (llmqueue_limit{" + ONE + ', kind="%s"})'
    calls = f"rate(llmqueue_calls_total{{{ONE}}}{RATE})"
    breaker = f'llmqueue_breaker{{{ONE}, state!="closed"}}'
    yield rows(
        "Limits",
        "Declared in the LLMQueue, effective as headers and 429s taught, and used in the window.",
        [(kind.capitalize(), kept % kind, "short") for kind in ("declared", "effective", "used")],
        names={"limit": "Limit"},
        width=8,
        height=8,
    )
    yield lines(
        "Used of each limit",
        "Of what the provider allows now. Full with a backlog is as it should be.",
        {"{{limit}}": f"{kept % 'used'} / {kept % 'effective'}"},
        unit="percentunit",
    )
    yield lines(
        "Outcomes a minute",
        "RATE and RAMP are 429s. UNKNOWN may have been paid without a result.",
        {"{{outcome}}": f"60 * sum by (outcome) ({calls})"},
        unit="cpm",
        stacked=True,
    )
    yield lines(
        "Rate factor",
        "Share of the rate that is used: less than 1 after 429s and at the start.",
        {"rate factor": f"min(llmqueue_rate_factor{{{ONE}}})"},
        unit="percentunit",
        width=6,
    )
    yield lines(
        "Pause of the provider",
        "How much longer nothing may be sent after a 429.",
        {"pause": f"max(llmqueue_blocked_seconds{{{ONE}}})"},
        unit="s",
        width=6,
    )
    yield states(
        "Breaker and key",
        "The breaker is open when most calls fail; a key is paused when it is refused or the"
        " account is empty.",
        f'label_replace(max({breaker}), "what", "breaker", "", "") or'
        f' label_join(max by (kind) (llmqueue_credential_pauses{{{ONE}}} > bool 0), "what", "",'
        ' "kind")',
        "{{what}}",
        {"0": ("good", GREEN), "1": ("stopped", RED)},
        width=12,
        height=8,
    )


def _jobs() -> Iterator[Panel]:
    yield lines(
        "Jobs that have not ended",
        "By state.",
        {
            "{{state}}": f"max by (state) (llmqueue_jobs{{{ONE},"
            ' state=~"ready|delayed|leased|sent|review"})'
        },
        stacked=True,
    )
    yield lines(
        "In and out a minute",
        "Enqueued above settled: the backlog grows.",
        {
            name: f"60 * sum(rate(llmqueue_jobs_{name}_total{{{ONE}}}{RATE}))"
            for name in ("enqueued", "granted", "settled")
        },
    )
    yield lines(
        "Ended a minute",
        "By how they ended.",
        {"{{state}}": f"60 * sum by (state) (rate(llmqueue_jobs_ended_total{{{ONE}}}{RATE}))"},
        stacked=True,
    )
    yield _quantiles("Wait before the call", "From being ready to the grant.", "queue_wait_seconds")
    yield _quantiles("Time of a call", "Calls that were sent.", "call_duration_seconds")
    yield lines(
        "Retries a minute",
        "Attempts after which the job waits to run again.",
        {"{{outcome}}": f"60 * sum by (outcome) (rate(llmqueue_retries_total{{{ONE}}}{RATE}))"},
        stacked=True,
    )
    yield lines(
        "Dead and in review",
        "Totals of dead letters by severity, and jobs that wait for a decision.",
        {
            "dead {{severity}}": f"max by (severity) (llmqueue_dead_letters_total{{{ONE}}})",
            "in review": f'max(llmqueue_jobs{{{ONE}, state="review"}})',
        },
    )
    yield lines(
        "Waiting by priority",
        "Ready jobs by band.",
        {"{{band}}": f"max by (band) (llmqueue_jobs_ready{{{ONE}}})"},
        stacked=True,
    )
    yield lines(
        "Tenants",
        "Those that wait, those at a limit of their own, and the jobs that this holds back.",
        {
            "tenants waiting": f"max(llmqueue_tenants_waiting{{{ONE}}})",
            "tenants at a limit": f"max(llmqueue_tenants_parked{{{ONE}}})",
            "jobs held back": f"max(llmqueue_jobs_held_back{{{ONE}}})",
        },
    )


def _quantiles(title: str, text: str, metric: str) -> Panel:
    buckets = f"sum by (le) (rate(llmqueue_{metric}_bucket{{{ONE}}}{RATE}))"
    return lines(
        title,
        text,
        {f"p{q}": f"histogram_quantile({q / 100}, {buckets})" for q in (50, 95, 99)},
        unit="s",
    )


def _workers() -> Iterator[Panel]:
    yield lines(
        "Workers",
        "Desired by the plan, those that take jobs, and those that finish and go.",
        {
            name: f"max(llmqueue_workers_{name}{{{ONE}}})"
            for name in ("desired", "actual", "draining")
        },
    )
    yield lines(
        "Slots",
        "Calls that the workers can make at once, and make.",
        {
            "slots": f"sum(llmqueue_worker_slots{{{ONE}}})",
            "in use": f"sum(llmqueue_worker_in_flight{{{ONE}}})",
        },
    )
    yield lines(
        "Silent for",
        "Since the last heartbeat of the worker that is silent longest, and the last answered claim"
        " by pod. Full workers do not claim.",
        {
            "heartbeat": f"max(llmqueue_oldest_heartbeat_seconds{{{ONE}}})",
            "claim {{pod}}": f"max by (pod) (llmqueue_worker_last_claim_age_seconds{{{ONE}}})",
        },
        unit="s",
    )
    yield lines(
        "Lost leases and late results",
        "Leases of workers that were lost, results that came too late, and pods that went unasked.",
        {
            "lost leases": f"sum(increase(llmqueue_reclaims_total{{{ONE}}}{RATE}))",
            "late results": f"sum(increase(llmqueue_fenced_settles_total{{{ONE}}}{RATE}))",
            "pods gone": f"sum(increase(llmqueue_unplanned_removals_total{{{ONE}}}{RATE}))",
        },
        width=12,
    )
    yield lines(
        "Memory of workers",
        "By pod. At worker.maxMemoryMiB a worker starts afresh.",
        {
            "{{pod}}": "max by (pod) (process_resident_memory_bytes{"
            f'{ONE}, job="llmqueue-worker"}})'
        },
        unit="bytes",
        width=12,
    )
