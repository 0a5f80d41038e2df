"""An installed wheel, without the source tree, has what `llmqueue demo` runs on."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from llmqueue_cli.local.demo import material

ROOT = Path(__file__).parents[3]
FILES = (material.OPENAI_FILE, material.ANTHROPIC_FILE, material.TRACE, "traces/README.md")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked as an installer would."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", str(ROOT), "--no-deps", "--no-build-isolation",
         "--no-index", "--disable-pip-version-check", "--wheel-dir", str(folder / "dist")],
        check=True,
        capture_output=True,
    )  # fmt: skip
    (wheel,) = (folder / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


@pytest.mark.parametrize("name", FILES)
def test_the_demo_finds_its_files_in_the_wheel(installed: Path, name: str) -> None:
    code = f"from llmqueue_cli.local.demo.material import example; print(example({name!r}))"
    found = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(installed)!r}); {code}"],
        cwd=installed,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    assert Path(found) == installed / "llmqueue_cli" / "examples" / name
    assert Path(found).read_bytes() == (ROOT / "examples" / name).read_bytes()
