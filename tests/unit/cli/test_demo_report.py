"""What the demo says of what it measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llmqueue_cli.local.demo.report import (
    Figures,
    ProviderCounts,
    Steady,
    WorkerLife,
    direction_changes,
    is_good,
    sentences,
    summary,
    utilisation,
)

GOOD = Figures(
    submitted=480,
    states={"succeeded": 480, "ready": 0},
    providers=(
        ProviderCounts("A", 240, 280, 0, 10, 0, 236, 0),
        ProviderCounts("B", 180, 220, 0, 0, 20, 179, 0),
    ),
    steady=(Steady(240, 240), Steady(181, 180)),
    targets={"a": (0, 3, 2, 0), "b": (0, 3, 1, 0)},
    workers=(WorkerLife(100.0, drained=True), WorkerLife(80.5, drained=True, busy_at_end=True)),
    peak=6,
    useful_seconds=240.25,
    seconds=112,
)


@pytest.mark.parametrize(
    ("targets", "changes"),
    [
        pytest.param((), 0, id="nothing"),
        pytest.param((0, 3), 0, id="up only"),
        pytest.param((0, 3, 2, 1, 0), 1, id="up, then down"),
        pytest.param((0, 3, 3, 2, 2, 4, 0), 3, id="up, down, up, down"),
    ],
)
def test_direction_changes(targets: tuple[int, ...], changes: int) -> None:
    assert direction_changes(targets) == changes


@pytest.mark.parametrize(
    ("steady", "share"),
    [
        pytest.param((), 0.0, id="nothing measured"),
        pytest.param((Steady(246, 240),), 1.0, id="all of 61.5 s"),
        pytest.param((Steady(123, 240), Steady(184, 180)), 0.7131, id="both together"),
        pytest.param((Steady(480, 240, windows=2),), 0.9756, id="two windows"),
    ],
)
def test_utilisation_is_measured_against_what_the_windows_allow(
    steady: tuple[Steady, ...], share: float
) -> None:
    assert utilisation(steady) == share


def test_the_line_has_the_fixed_words() -> None:
    assert summary(GOOD) == {
        "jobs": {"submitted": 480, "succeeded": 480, "dead": 0, "review": 0, "lost": 0},
        "provider": {
            "calls": 500, "answered_429": 0, "injected_429": 10, "worst_60s": 179, "limit": 180,
            "billed_twice": 0,
        },
        "budget_utilisation": 0.9779,
        "workers": {"peak": 6, "killed_busy": 0, "direction_changes": 2},
        "pod_seconds": 180.5,
        "useful_seconds": 240.2,
    }  # fmt: skip


def with_provider(**changes: int) -> Figures:
    return replace(GOOD, providers=(replace(GOOD.providers[0], **changes), GOOD.providers[1]))


BROKEN = [
    pytest.param(replace(GOOD, states={"succeeded": 479}), id="one lost"),
    pytest.param(replace(GOOD, states={"succeeded": 479, "dead": 1}), id="one dead"),
    pytest.param(replace(GOOD, states={"succeeded": 479, "ready": 1}), id="one left"),
    pytest.param(with_provider(answered_429=1), id="over the limit"),
    pytest.param(with_provider(worst_60s=241), id="a window over"),
    pytest.param(with_provider(billed_twice=1), id="billed twice"),
    pytest.param(
        replace(GOOD, workers=(WorkerLife(5.0, drained=False, busy_at_end=True),)),
        id="killed in a call",
    ),
]


@pytest.mark.parametrize("figures", BROKEN)
def test_a_broken_promise_is_not_called_good(figures: Figures) -> None:
    assert is_good(GOOD)
    assert not is_good(figures)


def test_a_lost_job_is_counted() -> None:
    lost = replace(GOOD, states={"succeeded": 470, "dead": 4, "review": 3, "ready": 1})
    assert summary(lost)["jobs"]["lost"] == 2
    assert "4 failed for good, 3 wait for a person, 2 were lost" in "\n".join(sentences(lost))


def test_the_words_carry_the_figures() -> None:
    text = "\n".join(sentences(GOOD))
    expected = (
        "480 jobs",
        "10 × 429",
        "20 × 529",
        "97.8%",
        "worst 60 seconds it counted 236",
        "6 at most",
        "2 left by finishing their calls first",
    )
    assert [words for words in expected if words not in text] == []
