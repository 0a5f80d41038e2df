"""What the demo is made of: its two LLMQueues, and jobs from an excerpt of real traffic."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any

from llmqueue.client import JobSpec
from llmqueue.errors import UsageError
from llmqueue.states import ProviderType

OPENAI_FILE, ANTHROPIC_FILE = "demo-openai.yaml", "demo-anthropic.yaml"
TRACE = "traces/azure_llm_2023_conv_excerpt.csv"
MODELS = {ProviderType.OPENAI: "gpt-4o-mini", ProviderType.ANTHROPIC: "claude-haiku-4-5"}
_MAX_PROMPT_WORDS = 200
_SHARES = {ProviderType.OPENAI: slice(0, None, 2), ProviderType.ANTHROPIC: slice(1, None, 2)}


def example(name: str) -> Path:
    """A file of examples/: the wheel has them in the package, a source tree beside it."""
    package = Path(str(resources.files("llmqueue_cli")))
    for folder in (package, package.parents[1]):
        if (file := folder / "examples" / name).is_file():
            return file
    raise UsageError(f"the demo's file examples/{name} is missing from this installation")


def traffic() -> list[tuple[int, int]]:
    """(prompt tokens, generated tokens) of real requests, in the order of their arrival."""
    with example(TRACE).open(newline="") as file:
        return [
            (int(row["ContextTokens"]), int(row["GeneratedTokens"])) for row in csv.DictReader(file)
        ]


def jobs(provider: ProviderType, count: int) -> Iterator[JobSpec]:
    """The first `count` requests of the provider's half of the traffic.

    Prompts keep their relative length but are cut: the demo is about pace, not about volume.
    """
    rows = traffic()[_SHARES[provider]]
    for prompt_tokens, generated_tokens in islice(rows, count):
        yield JobSpec(payload=_payload(provider, prompt_tokens, generated_tokens))


def _payload(provider: ProviderType, prompt_tokens: int, generated_tokens: int) -> dict[str, Any]:
    words = max(1, min(_MAX_PROMPT_WORDS, prompt_tokens // 10))
    return {
        "model": MODELS[provider],
        "messages": [{"role": "user", "content": "word " * words}],
        "max_tokens": max(1, generated_tokens),
    }
