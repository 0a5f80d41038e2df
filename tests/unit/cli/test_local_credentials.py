"""Where keys come from, and that they show up nowhere else."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from llmqueue.errors import UsageError
from llmqueue.states import ProviderType
from llmqueue_cli.local.credentials import Credentials, read_file, variable_of, write_key

OPENAI, ANTHROPIC, COMPATIBLE = ProviderType


@pytest.mark.parametrize(
    ("provider", "secret", "file", "environment", "key"),
    [
        pytest.param(OPENAI, None, "", {"OPENAI_API_KEY": "e"}, "e", id="usual variable"),
        pytest.param(ANTHROPIC, "a", "", {"ANTHROPIC_API_KEY": "e"}, "e", id="usual, secret named"),
        pytest.param(
            ANTHROPIC,
            "team-a.key",
            "",
            {"ANTHROPIC_API_KEY": "e", "LLMQUEUE_CREDENTIAL_TEAM_A_KEY": "mine"},
            "mine",
            id="the secret's own variable wins",
        ),
        pytest.param(
            OPENAI, "team", "team=f\n", {"LLMQUEUE_CREDENTIAL_TEAM": "e"}, "f", id="file wins"
        ),
        pytest.param(
            OPENAI, None, "# note\n\nOPENAI_API_KEY = f=1\n", {}, "f=1", id="usual name in the file"
        ),
        pytest.param(OPENAI, "path", "", {"path": "no", "OPENAI_API_KEY": "e"}, "e",
                     id="a secret's bare name is no variable"),
        pytest.param(COMPATIBLE, None, "", {}, None, id="none needed"),
        pytest.param(COMPATIBLE, "gone", "", {}, None, id="none needed, one named"),
        pytest.param(COMPATIBLE, "own", "own=k", {}, "k", id="used where there is one"),
    ],
)  # fmt: skip
def test_keys_are_found(
    tmp_path: Path,
    provider: ProviderType,
    secret: str | None,
    file: str,
    environment: dict[str, str],
    key: str | None,
) -> None:
    path = tmp_path / "keys"
    path.write_text(file)
    assert Credentials(path, environment).key("default/q", provider, secret) == key


def test_a_missing_key_names_its_variables() -> None:
    with pytest.raises(UsageError) as caught:
        Credentials(None, {}).key("default/q", OPENAI, "team-a")
    assert "LLMQUEUE_CREDENTIAL_TEAM_A or OPENAI_API_KEY" in str(caught.value)
    assert "default/q" in str(caught.value)


@pytest.mark.parametrize("line", ["sk-secret-alone", "=sk-secret", "name="])
def test_a_bad_line_is_named_but_never_quoted(tmp_path: Path, line: str) -> None:
    path = tmp_path / "keys"
    path.write_text(f"good=1\n{line}\n")
    with pytest.raises(UsageError, match=":2: expected NAME=KEY") as caught:
        read_file(path)
    assert "sk-secret" not in str(caught.value)


def test_a_missing_file_is_the_user_s_mistake(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_file(tmp_path / "none")


def test_a_key_file_is_private_and_changes_only_with_the_key(tmp_path: Path) -> None:
    path = write_key(tmp_path, "default/q", "one")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.stat().st_ino
    assert write_key(tmp_path, "default/q", "one").stat().st_ino == before
    assert write_key(tmp_path, "default/q", "two").read_text() == "two"


def test_variables_are_spelled_as_a_shell_allows() -> None:
    assert variable_of("my-team.openai") == "LLMQUEUE_CREDENTIAL_MY_TEAM_OPENAI"
