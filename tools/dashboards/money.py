"""What the calls cost, and for what."""

from __future__ import annotations

from collections.abc import Iterator

from grafana_foundation_sdk.builders import dashboard as build

from tools.dashboards.frame import QUEUES, filled, frame, queue_choices
from tools.dashboards.panels import GREEN, YELLOW, Panel, lines, number, rows

RANGE = "[$__range]"
RATE = "[$__rate_interval]"
HOURS_A_MONTH = 730


def money() -> build.Dashboard:
    made = frame(
        "money",
        "llmqueue / Money",
        "Cost and tokens as booked in the ledger. What has no price is not in the cost.",
        queue_choices(),
        alerts='namespace=~"$namespace"',
    )
    below = {"Tokens": _tokens(), "Paid for nothing": _lost()}
    return filled(made, (*_answers(), *_cost()), below)


def _total(metric: str, *matchers: str) -> str:
    """Within the shown time."""
    chosen = ", ".join([QUEUES, *matchers])
    return f"sum(increase(llmqueue_{metric}_total{{{chosen}}}{RANGE}))"


def _answers() -> Iterator[Panel]:
    succeeded = _total("jobs_ended", 'state="succeeded"')
    cached = _total("tokens", 'type="cached_input"')
    sent = _total("tokens", 'type=~"input|cached_input|cache_write"')
    yield number("Cost", "Within the shown time.", _total("cost_usd"), unit="currencyUSD", width=4)
    yield number(
        "Cost an hour",
        "At the rate of the last hour.",
        f"3600 * sum(rate(llmqueue_cost_usd_total{{{QUEUES}}}[1h]))",
        unit="currencyUSD",
        width=4,
    )
    yield number(
        "A month like this hour",
        "The last hour's cost for 730 hours.",
        f"{HOURS_A_MONTH} * 3600 * sum(rate(llmqueue_cost_usd_total{{{QUEUES}}}[1h]))",
        unit="currencyUSD",
        width=4,
    )
    yield number(
        "Cost of a job",
        "Per job that succeeded, with what its failed attempts cost.",
        f"{_total('cost_usd')} / {succeeded}",
        unit="currencyUSD",
        width=4,
    )
    yield number(
        "Read from the cache",
        "Share of the input tokens, which providers bill at a fraction.",
        f"({cached} or vector(0)) / {sent}",
        unit="percentunit",
        width=4,
    )
    yield number(
        "Calls without a price",
        "Billed calls whose price is not known: their cost is missing here.",
        f"{_total('unpriced_calls')} or vector(0)",
        steps=((None, GREEN), (1, YELLOW)),
        width=4,
    )


def _cost() -> Iterator[Panel]:
    cost = f"rate(llmqueue_cost_usd_total{{{QUEUES}}}{RATE})"
    yield lines(
        "Cost an hour by model",
        "As booked.",
        {"{{model}}": f"3600 * sum by (model) ({cost})"},
        unit="currencyUSD",
        stacked=True,
        width=12,
    )
    yield lines(
        "Cost an hour by queue",
        "As booked.",
        {"{{namespace}}/{{queue}}": f"3600 * sum by (namespace, queue) ({cost})"},
        unit="currencyUSD",
        stacked=True,
        width=12,
    )
    by = "sum by (namespace, queue, model)"
    yield rows(
        "Within the shown time",
        "By queue and model.",
        (
            ("Cost", f"{by} (increase(llmqueue_cost_usd_total{{{QUEUES}}}{RANGE}))", "currencyUSD"),
            ("Calls", f"{by} (increase(llmqueue_calls_total{{{QUEUES}}}{RANGE}))", "short"),
            ("Tokens", f"{by} (increase(llmqueue_tokens_total{{{QUEUES}}}{RANGE}))", "short"),
        ),
        names={"namespace": "Namespace", "queue": "Queue", "model": "Model"},
    )


def _tokens() -> Iterator[Panel]:
    tokens = f"rate(llmqueue_tokens_total{{{QUEUES}}}{RATE})"
    yield lines(
        "Tokens a minute by type",
        "Input without cached and written tokens, output without reasoning.",
        {"{{type}}": f"60 * sum by (type) ({tokens})"},
        stacked=True,
    )
    yield lines(
        "Tokens a minute by model",
        "All types.",
        {"{{model}}": f"60 * sum by (model) ({tokens})"},
        stacked=True,
    )
    yield lines(
        "Input against its estimate",
        "Real tokens as a share of estimated ones, lately. Far below 1, limits of tokens are not"
        " used up.",
        {
            "{{namespace}}/{{queue}}": "max by (namespace, queue)"
            f" (llmqueue_estimate_error_ratio{{{QUEUES}}})"
        },
        unit="percentunit",
    )


def _lost() -> Iterator[Panel]:
    calls = f'llmqueue_calls_total{{{QUEUES}, outcome!="SUCCESS"}}'
    yield lines(
        "Calls without a result a minute",
        "By outcome. MALFORMED was paid, UNKNOWN may have been, most others cost nothing.",
        {"{{outcome}}": f"60 * sum by (outcome) (rate({calls}{RATE}))"},
        unit="cpm",
        stacked=True,
        width=12,
    )
    yield lines(
        "Paid twice, perhaps",
        "Totals: calls of jobs for which an earlier one may have been paid too, and results that"
        " came after their job was given to another worker.",
        {
            "possible duplicates": "sum(max by (namespace, queue)"
            f" (llmqueue_possible_duplicates_total{{{QUEUES}}}))",
            "late results": "sum(max by (namespace, queue)"
            f" (llmqueue_fenced_settles_total{{{QUEUES}}}))",
        },
        width=12,
    )
