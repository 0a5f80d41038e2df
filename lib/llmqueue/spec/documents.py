"""YAML as Kubernetes reads it: no dates, no key twice, several documents in a file."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

from llmqueue.errors import InvalidResource

_TIMESTAMP = "tag:yaml.org,2002:timestamp"


def read_documents(file: Path) -> list[Any]:
    """The documents of a YAML or JSON file; None for an empty one.

    Raises InvalidResource naming file, line and column.
    """
    try:
        import yaml  # noqa: PLC0415 - only who reads files needs it
    except ImportError as exc:
        raise InvalidResource(
            "reading manifests needs PyYAML: install llmqueue with the extra [cli]"
        ) from exc

    class Loader(yaml.SafeLoader):
        """Refuses repeated keys, of which others silently take the last."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
            seen: set[str] = set()
            for key, _ in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    continue
                if key.value in seen:
                    raise yaml.MarkedYAMLError(
                        problem=f"{key.value} is there twice: leave one out",
                        problem_mark=key.start_mark,
                    )
                seen.add(key.value)
            return super().construct_mapping(node, deep=deep)

    Loader.yaml_implicit_resolvers = {
        first: [pair for pair in pairs if pair[0] != _TIMESTAMP]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    try:
        text = file.read_text(encoding="utf-8-sig")
        return list(yaml.load_all(text, Loader=Loader))
    except UnicodeDecodeError as exc:
        raise InvalidResource(f"{file}: is not UTF-8 text") from exc
    except OSError as exc:
        raise InvalidResource(f"{file}: cannot be read: {exc.strerror}") from exc
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark
        where = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark else str(file)
        raise InvalidResource(f"{where}: {exc.problem}") from exc
    except (yaml.YAMLError, ValueError) as exc:
        raise InvalidResource(f"{file}: is not YAML: {exc}") from exc
