"""`python -m benchmarks.operator`: the operator's CPU, memory and restart with many LLMQueues.

Needs the tests' cluster (`make cluster-up`) and `PYTHONPATH=tests`.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
from pathlib import Path

from benchmarks.machine import facts, sentence
from benchmarks.operator.measure import Figures, measure
from benchmarks.tables import table
from cluster.bench import Kube
from cluster.tool import Cluster

HERE = Path(__file__).parent
COLUMNS = (
    "LLMQueues",
    "created to served s",
    "restart to planned s",
    "CPU % of a core",
    "memory MiB",
    "written",
)


async def _measure(numbers: list[int], steady_seconds: float) -> list[Figures]:
    cluster = Cluster.load()
    async with Kube.connected(cluster.binaries / "kubectl", cluster.kubeconfig) as kube:
        return [await measure(kube, each, steady_seconds=steady_seconds) for each in numbers]


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.operator", description=__doc__)
    parser.add_argument("--queues", type=int, nargs="+", default=[100, 300, 1000])
    parser.add_argument("--steady-seconds", type=float, default=60)
    asked = parser.parse_args()
    machine = facts()
    found = asyncio.run(_measure(asked.queues, asked.steady_seconds))
    rows = [
        [
            f"{f.queues:,}",
            f"{f.served_seconds:g}",
            f"{f.restart_seconds:g}",
            f"{f.cpu_percent:g}",
            f"{f.memory_mib:g}",
            str(f.written),
        ]
        for f in found
    ]
    document = {"machine": machine, "rows": [dataclasses.asdict(f) for f in found]}
    (HERE / "results.json").write_text(json.dumps(document, indent=2) + "\n")
    text = "\n".join(
        (
            "# The operator with many LLMQueues\n",
            "Written by `python -m benchmarks.operator`.\n",
            table(COLUMNS, rows),
            "",
            "All idle, one replica, in a pod of the tests' cluster on this machine, whose control"
            " plane runs beside it. CPU and memory over"
            f" {asked.steady_seconds:g} s without any change; `written`: LLMQueues, Deployments"
            " and Events that changed in that time. Bounds at 1,000: restart 60 s, one core,"
            " 300 MB, nothing written.\n",
            sentence(machine) + ".\n",
        )
    )
    (HERE / "results.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
