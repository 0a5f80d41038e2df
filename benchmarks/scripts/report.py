"""The measured times and sizes as a page, each against its bound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.machine import sentence
from benchmarks.tables import table

LONGEST_MS = 5.0
CLAIM_SPREAD = 4.0
TENANT_RATIO = 1.3
OVERHEAD_BYTES, OVERHEAD_WITH_KEY_BYTES = 400, 520


def markdown(results: Mapping[str, Any]) -> str:
    """The page."""
    rows = [
        [
            scenario,
            script,
            f"{each['calls']:,}",
            f"{each['p50_us'] / 1000:.3f}",
            f"{each['p99_us'] / 1000:.3f}",
            f"{each['max_us'] / 1000:.3f}",
        ]
        for scenario, scripts in results["scripts"].items()
        for script, each in scripts.items()
    ]
    memory = results["memory"]
    return (
        "\n\n".join(
            [
                "# Time of scripts inside the server, and memory of waiting jobs",
                "Written by `python -m benchmarks.scripts`.",
                "\n".join(f"- {line}" for line in verdicts(results)),
                "## Milliseconds inside the server",
                table(["with", "script", "calls", "p50 ms", "p99 ms", "max ms"], rows),
                "How long the server's main thread ran for each call, as the kernel counts it: what"
                " other processes took is not in it; reading, answering and the append-only file"
                " are. Every limit is set and none binds. `× n`: n jobs a call.",
                f"Memory: {memory['jobs']:,} waiting jobs with a payload of"
                f" {memory['payload_bytes']} bytes and a model's name.",
                f"{sentence(results['machine'])}.",
            ]
        )
        + "\n"
    )


def verdicts(results: Mapping[str, Any]) -> list[str]:
    """What was reached of what is promised."""
    scripts = results["scripts"]
    said: list[str] = []
    if scripts:
        worst = max(
            ((each["max_us"], name, scenario) for scenario, found in scripts.items()
             for name, each in found.items())
        )  # fmt: skip
        said.append(
            f"longest script: {worst[0] / 1000:.1f} ms ({worst[1]}, {worst[2]});"
            f" bound {LONGEST_MS:g} ms"
        )
    said += [
        f"claim of one job, {scenario.partition(' waiting')[0]} waiting: p99 is"
        f" {found['claim']['p99_us'] / found['claim']['p50_us']:.1f} × p50"
        f" ({found['claim']['p50_us']:.0f} µs); bound {CLAIM_SPREAD:g} ×"
        for scenario, found in scripts.items()
        if "claims of one job" in scenario
    ]
    memory = results["memory"]
    return [
        *said,
        *_tenants(scripts),
        f"a waiting job costs {memory['overhead_bytes']:.0f} bytes above its payload; bound"
        f" {OVERHEAD_BYTES}",
        f"with an idempotency key: {memory['overhead_with_key_bytes']:.0f} bytes; bound"
        f" {OVERHEAD_WITH_KEY_BYTES}",
    ]


def _tenants(scripts: Mapping[str, Any]) -> list[str]:
    """What a claim costs with a tenant for each job, beside claims of one tenant's jobs."""
    said: list[str] = []
    for scenario, found in scripts.items():
        other = scripts.get(scenario.replace("a tenant each", "one tenant"))
        if "a tenant each" not in scenario or other is None:
            continue
        for script, each in found.items():
            ratio = each["p50_us"] / other[script]["p50_us"]
            said.append(
                f"{script}: with {scenario.split(' jobs')[0]} tenants {ratio:.2f} × the time of one"
                f" tenant; bound {TENANT_RATIO:g} ×"
            )
    return said
