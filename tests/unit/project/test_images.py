"""What the Dockerfile and `make images` say about the images, without building them."""

from __future__ import annotations

import re
import subprocess
import tomllib

import pytest

from support.checkout import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text()
IMAGES = ("operator", "worker", "cli")
# org.opencontainers.image.…, without `created`: the same sources give the same image.
LABELS = {"title", "description", "version", "revision", "licenses"}


def stage(name: str) -> str:
    found = re.search(
        rf"^FROM \S+ AS {name}$(.*?)(?=^FROM |\Z)", DOCKERFILE, re.MULTILINE | re.DOTALL
    )
    assert found is not None, f"no stage {name}"
    return found.group(1)


def labels(text: str) -> set[str]:
    return set(re.findall(r"org\.opencontainers\.image\.(\w+)=", text))


def commands(*options: str) -> list[str]:
    """The build commands of `make images`, in the order of the images; nothing is run."""
    shown = subprocess.run(
        ["make", "--no-print-directory", "-n", "-o", ".venv/.ready", "images", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.replace("\\\n", " ")
    (loop,) = re.findall(r"for target in ([\w ]+); do\s(.*?)done", shown, re.DOTALL)
    return [loop[1].replace("$target", each) for each in loop[0].split()]


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_says_what_it_is(image: str) -> None:
    assert labels(stage("runtime")) | labels(stage(image)) == LABELS


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_runs_as_nobody_in_particular_and_carries_its_bill(image: str) -> None:
    assert "\nUSER 65532:65532\n" in stage(image)
    assert f"\nCOPY --from={image}-sbom /sbom.cdx.json /usr/share/doc/llmqueue/\n" in stage(image)
    assert f"COPY requirements/{image}.txt" in stage(f"{image}-dependencies")


@pytest.mark.parametrize("image", IMAGES)
def test_another_commit_changes_no_layer(image: str) -> None:
    """What differs from one commit to the next comes after everything that makes a layer."""
    before, _, after = stage(image).partition("ARG VERSION")
    assert "COPY" in before
    assert not re.search(r"^(?:COPY|RUN|ADD)", after, re.MULTILINE)


def test_make_builds_each_with_version_and_revision() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    built = commands("REGISTRY=registry.example/x", "TAG=other")
    assert len(built) == len(IMAGES)
    for image, command in zip(IMAGES, built, strict=True):
        assert f"--target {image} " in command
        assert f"--tag registry.example/x/{image}:other " in command
        assert f"--build-arg VERSION={version} " in command
        assert re.search(r"--build-arg REVISION=(?:[0-9a-f]{40}(?:-dirty)?|unknown) ", command)
        assert "--label" not in command, "an address that nobody gave"


def test_make_labels_where_the_sources_are_if_that_is_known() -> None:
    for command in commands("SOURCE=https://git.example/llmqueue"):
        for label in ("source", "documentation"):
            assert (
                f"--label org.opencontainers.image.{label}=https://git.example/llmqueue " in command
            )
