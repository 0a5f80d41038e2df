"""docs/tutorial-kubernetes.md, by copying only its commands.

What differs on a test cluster: the images are there already, under the names of the tests; Valkey
comes from one of them, and the CRD is everybody's. The log of all commands is kept in the test's
folder, also while they run.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from cluster.bench import Kube, objects
from cluster.bench.given import IMAGES
from cluster.bench.kube import CommandFailed
from cluster.bench.release import images
from support.checkout import ROOT
from support.consoleblocks import commands, quoted, replaced, run, stand_in, told, verified
from support.rendering import helm

NAME = "docs/tutorial-kubernetes.md"
NAMESPACE = "llmqueue"
MINUTES = 8


@pytest.fixture
async def namespace(kube: Kube) -> AsyncIterator[str]:
    """The tutorial's own, without what an earlier run left; tells what is in it after a failure."""
    await _delete(kube)
    await kube.apply(objects.namespace(NAMESPACE))  # under restricted pod security
    yield NAMESPACE
    for command in (
        ("get", "pods,deployments,services,llmqueues", "-o", "wide"),
        ("get", "events", "--sort-by=.lastTimestamp"),
        ("logs", "-l", "app.kubernetes.io/name=llmqueue-operator", "--tail=40", "--prefix"),
        ("logs", "-l", "app.kubernetes.io/name=llmqueue-worker", "--tail=20", "--prefix"),
    ):
        with suppress(CommandFailed):  # at the end of the tutorial it is gone
            print(await kube.run("-n", NAMESPACE, *command))
    await _delete(kube)


async def _delete(kube: Kube) -> None:
    with suppress(CommandFailed):
        await kube.run("-n", NAMESPACE, "delete", "llmqueues", "--all", "--timeout=30s")
    await kube.run("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=100s")


@pytest.fixture
def terminal(kube: Kube, tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A reader's checkout and environment."""
    checkout = tmp_path / "checkout"
    for name in ("charts", "examples"):
        shutil.copytree(ROOT / name, checkout / name)
    kubeconfig = checkout.with_name("kubeconfig")
    shutil.copy(kube.kubeconfig, kubeconfig)  # a command may change it
    values = tmp_path / "values.json"
    values.write_text(json.dumps({**images(), "crds": {"install": False}}))
    programs = tmp_path / "programs"
    stand_in(programs, "kubectl", f'exec {quoted(kube.kubectl)} "$@"')
    stand_in(programs, "make", "echo the images are there already")
    further = quoted(f"--values={values}")
    stand_in(
        programs,
        "helm",
        f'[ "$1" != install ] || set -- "$@" {further}\nexec {quoted(helm())} "$@"',
    )
    path = f"{programs}:{os.environ['PATH']}"
    return checkout, {**os.environ, "PATH": path, "KUBECONFIG": str(kubeconfig)}


@pytest.mark.timeout((MINUTES + 3) * 60)
async def test_its_commands_do_what_it_says(
    namespace: str, terminal: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    checkout, environment = terminal
    version = importlib.metadata.version("llmqueue")
    found = replaced(
        commands((ROOT / NAME).read_text()),
        {
            f"export REGISTRY=registry.example/llmqueue TAG={version}": (
                f"export REGISTRY={quoted(IMAGES)} TAG=dev"
            )
        },
    )

    done = await asyncio.to_thread(
        run,
        found,
        folder=checkout,
        environment=environment,
        log=tmp_path / "tutorial.log",
        timeout_seconds=MINUTES * 60,
    )

    print(told(NAME, done))
    verified(NAME, found, done)
    outputs = {each.command.text.split("\n")[0]: each.output for each in done}
    assert "JOBS ARE KEPT IN A TRIAL VALKEY" in outputs[_command(outputs, "helm install")]
    assert "State:     succeeded" in outputs['llmq job "$(cat first.txt)"']
    assert (
        "the same jobs" in outputs[_command(outputs, "llmq enqueue llmqueue/batch --file - --wait")]
    )
    assert "101 succeeded" in outputs["llmq queue llmqueue/batch"]
    assert sorted(path.name for path in checkout.iterdir() if not path.name.startswith(".")) == [
        "charts",
        "examples",
    ]


def _command(outputs: dict[str, str], begins: str) -> str:
    (found,) = [text for text in outputs if text.startswith(begins)]
    return found
