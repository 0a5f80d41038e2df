"""Files → LLMQueues, and what is said where that does not work."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from llmqueue.errors import InvalidResource
from llmqueue.spec import LLMQueue, load_manifests

HEAD = "apiVersion: llmqueue.dev/v1alpha1\nkind: LLMQueue\nmetadata: {name: NAME}\n"
SPEC = "spec: {provider: {type: openai}, limits: {requestsPerMinute: 60}}\n"
SECRET = "apiVersion: v1\nkind: Secret\nmetadata: {name: key}\nstringData: {api-key: x}\n"


def queue(name: str = "a", spec: str = SPEC) -> str:
    return HEAD.replace("NAME", name) + spec


def write(tmp_path: Path, *documents: str, name: str = "queue.yaml") -> Path:
    file = tmp_path / name
    file.write_text("---\n".join(documents))
    return file


def refusal(*files: Path) -> list[str]:
    """The lines of the error, without the folder."""
    with pytest.raises(InvalidResource) as caught:
        load_manifests(files)
    folder = str(files[0].parent) if files else ""
    return str(caught.value).replace(f"{folder}/", "").splitlines()


def names(queues: list[LLMQueue]) -> list[str]:
    return [f"{each.metadata.namespace}/{each.metadata.name}" for each in queues]


# ------------------------------------------------------------ what is read


def test_documents_and_files_keep_their_order(tmp_path: Path) -> None:
    first = write(tmp_path, queue("b"), queue("a"))
    second = write(tmp_path, queue("c"), name="more.yaml")
    assert names(load_manifests([first, second])) == ["default/b", "default/a", "default/c"]


def test_json_and_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "queue.json"
    document = {
        "apiVersion": "llmqueue.dev/v1alpha1",
        "kind": "LLMQueue",
        "metadata": {"name": "a", "namespace": "team"},
        "spec": {"provider": {"type": "openai"}, "limits": {"requestsPerMinute": 60}},
    }
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps(document).encode())
    assert names(load_manifests([file])) == ["team/a"]


def test_a_list_stands_for_its_items(tmp_path: Path) -> None:
    item = json.loads(
        '{"apiVersion": "llmqueue.dev/v1alpha1", "kind": "LLMQueue", "metadata": {"name": "a"},'
        '"spec": {"provider": {"type": "openai"}, "limits": {"requestsPerMinute": 60}}}'
    )
    file = tmp_path / "list.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [item]}))
    assert names(load_manifests([file])) == ["default/a"]
    item["spec"]["limits"] = {}
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [item, 3]}))
    lines = refusal(file)
    assert lines[0].startswith("list.json: document 1: item 1: spec.limits: needs at least one")
    assert "list.json: document 1: item 2: kind: is required" in lines


def test_null_is_not_given(tmp_path: Path) -> None:
    """As the API server has it, for optional fields and for those with a default."""
    spec = SPEC.replace("60}", "60, maxInFlight: null}, scaling: {maxReplicas: null}, redis: null")
    (read,) = load_manifests([write(tmp_path, queue(spec=spec))])
    assert read.spec.limits.max_in_flight is None
    assert read.spec.scaling.max_replicas == 20


def test_what_the_api_server_adds_is_passed_over(tmp_path: Path) -> None:
    """`kubectl get -o yaml > file` can be read again: dates, managed fields and status."""
    head = HEAD.replace(
        "{name: NAME}",
        "{name: a, uid: x, generation: 3, resourceVersion: '7', creationTimestamp:"
        " 2026-01-02T03:04:05Z, annotations: {day: 2026-01-02}, managedFields: [{manager: k}]}",
    )
    (read,) = load_manifests([write(tmp_path, head + SPEC + "status: {anything: [1]}\n")])
    assert (read.metadata.uid, read.metadata.generation, read.status) == ("x", 3, None)


def test_other_kinds_are_passed_over_and_noted(tmp_path: Path) -> None:
    notes: list[str] = []
    file = write(tmp_path, SECRET, queue(), "# nothing\n")
    assert names(load_manifests([file], note=notes.append)) == ["default/a"]
    assert notes == [f"{file}: document 1: kind Secret is passed over"]


def test_notes_go_to_the_log_by_default(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    load_manifests([write(tmp_path, SECRET, queue())])
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "kind Secret is passed over" in caplog.text


# ------------------------------------------------------------ what is refused


def test_nothing_left(tmp_path: Path) -> None:
    assert refusal(write(tmp_path, SECRET)) == [
        "queue.yaml: document 1: kind Secret is passed over",
        "no LLMQueue found in queue.yaml: one is needed",
    ]
    assert refusal() == ["no LLMQueue found in no file: one is needed"]


def test_the_same_name_twice(tmp_path: Path) -> None:
    first, second = write(tmp_path, queue()), write(tmp_path, queue(), name="b.yaml")
    assert refusal(first, second) == [
        "b.yaml: document 1: metadata.name: default/a is also in queue.yaml: document 1:"
        " each LLMQueue may be there once"
    ]


def test_everything_wrong_is_told_at_once(tmp_path: Path) -> None:
    bad = write(
        tmp_path,
        queue(spec=SPEC.replace("60", "0")),
        queue("b", SPEC.replace("openai", "opnai")),
    )
    assert refusal(bad, tmp_path / "gone.yaml") == [
        "queue.yaml: document 1: spec.limits.requestsPerMinute: must be ≥ 1, got 0",
        "queue.yaml: document 2: spec.provider.type: must be one of openai, anthropic,"
        ' openai-compatible, got "opnai": did you mean openai?',
        "gone.yaml: cannot be read: No such file or directory",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("a: [1\n", "queue.yaml:2:1: ", id="syntax"),
        pytest.param("a: 1\na: 2\n", "queue.yaml:2:1: a is there twice", id="key twice"),
        pytest.param("a: 1\n? [x]\n: 2\n", "queue.yaml:2:3: ", id="key that is no text"),
        pytest.param("a: \x07\n", "queue.yaml: is not YAML: ", id="control character"),
        pytest.param("a: !!python/object:os.x {}\n", "queue.yaml:1:4: ", id="a tag"),
        pytest.param("- a\n", "queue.yaml: document 1: must be an object", id="a list"),
        pytest.param(
            "kind: 3\n", "queue.yaml: document 1: kind: must be LLMQueue, got 3", id="kind"
        ),
        pytest.param(
            queue().replace("v1alpha1", "v1"),
            "queue.yaml: document 1: apiVersion: this program reads llmqueue.dev/v1alpha1, got"
            " llmqueue.dev/v1",
            id="another version",
        ),
        pytest.param(
            queue().replace("metadata: {name: a}", "metadata: {name: A_b}"),
            "queue.yaml: document 1: metadata.name: must be lower-case letters",
            id="name",
        ),
        pytest.param(
            queue("a" * 64),
            "queue.yaml: document 1: metadata.name: must have at most 63 characters",
            id="long name",
        ),
        pytest.param(
            queue().replace("{name: a}", "{name: a, lables: {}}"),
            "queue.yaml: document 1: metadata.lables: unknown field: did you mean labels?",
            id="metadata's field",
        ),
        pytest.param(
            queue().replace("{name: a}", "{name: a, zzz: {}}"),
            "queue.yaml: document 1: metadata.zzz: unknown field",
            id="metadata's unheard-of field",
        ),
        pytest.param(
            queue().replace("{name: a}", "a"),
            'queue.yaml: document 1: metadata: must be an object, got "a"',
            id="metadata is text",
        ),
    ],
)
def test_refused_files(tmp_path: Path, text: str, said: str) -> None:
    assert any(line.startswith(said) for line in refusal(write(tmp_path, text)))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        pytest.param(
            "limits: {requestPerMinute: 1}",
            "spec.limits.requestPerMinute: unknown field: did you mean requestsPerMinute?",
            id="nearly right",
        ),
        pytest.param(
            "limits: {requestsperminute: 1}",
            "spec.limits.requestsperminute: unknown field: did you mean requestsPerMinute?",
            id="lower case",
        ),
        pytest.param(
            "drainSeconds: 300",
            "spec.drainSeconds: unknown field: it belongs to spec.gracePeriods",
            id="another place",
        ),
        pytest.param(
            "gracePeriods: {xyz: 1}",
            "spec.gracePeriods.xyz: unknown field: known are drainSeconds, shutdownMarginSeconds",
            id="unheard of",
        ),
        pytest.param(
            "worker: {env: [{name: A, vale: x}]}",
            "spec.worker.env[0].vale: unknown field: did you mean value?",
            id="in a list",
        ),
        pytest.param(
            "scaling: {paused: 1}",
            "spec.scaling.paused: must be true or false, got 1",
            id="flag",
        ),
        pytest.param(
            "limits: {requestsPerMinute: true}",
            "spec.limits.requestsPerMinute: must be a whole number, got true",
            id="number",
        ),
        pytest.param(
            "provider: {type: openai, models: gpt}",
            'spec.provider.models: must be a list, got "gpt"',
            id="list",
        ),
        pytest.param(
            "provider: {type: openai, models: ['']}",
            "spec.provider.models[0]: must not be empty",
            id="empty",
        ),
        pytest.param(
            "retry: {overload: {delaysSeconds: []}}",
            "spec.retry.overload.delaysSeconds: must have at least 1 items, got 0",
            id="short list",
        ),
        pytest.param(
            f"retry: {{overload: {{delaysSeconds: {[1] * 21}}}}}",
            "spec.retry.overload.delaysSeconds: must have at most 20 items, got 21",
            id="long list",
        ),
        pytest.param(
            "retry: {jitterPercent: 101}",
            "spec.retry.jitterPercent: must be ≤ 100, got 101",
            id="above",
        ),
        pytest.param(
            "retry: {unknownOutcome: {autoRetryBelowUSD: 0.05}}",
            "spec.retry.unknownOutcome.autoRetryBelowUSD: must be a decimal number of US dollars in"
            ' quotes, like "12.50", got 0.05',
            id="money",
        ),
        pytest.param(
            r'worker: {image: "\ud800"}',
            "spec.worker.image: Input should be a valid string, unable to parse raw data as a"
            r' unicode string, got "\ud800"',
            id="half a character",
        ),
        pytest.param("worker: {image: 1}", "spec.worker.image: must be text, got 1", id="text"),
        pytest.param(
            f"worker: {{handlers: '{'x' * 100}/'}}",
            f'spec.worker.handlers: must be the dotted name of a Python module, got "{"x" * 58}…',
            id="long value",
        ),
        pytest.param(
            "worker: {resources: 1}",
            "spec.worker.resources: must be an object, got 1",
            id="object",
        ),
    ],
)
def test_refused_fields(tmp_path: Path, fields: str, said: str) -> None:
    spec = {"provider": "provider: {type: openai}", "limits": "limits: {requestsPerMinute: 1}"}
    spec[fields.partition(":")[0]] = fields
    text = "spec:\n" + "".join(f"  {line}\n" for line in spec.values())
    assert f"queue.yaml: document 1: {said}" in refusal(write(tmp_path, queue(spec=text)))


@pytest.mark.parametrize("secret", ["://user:hunter2@h/v1", "://h/v1?key=hunter2"])
def test_what_may_be_a_secret_is_not_repeated(tmp_path: Path, secret: str) -> None:
    spec = f"{{type: openai, baseURL: 'https{secret}'}}"
    lines = refusal(write(tmp_path, queue(spec=SPEC.replace("{type: openai}", spec))))
    assert lines[0].startswith("queue.yaml: document 1: spec.provider.baseURL: must")
    assert "hunter2" not in lines[0]


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    file = tmp_path / "queue.yaml"
    file.write_bytes(b"\xff\xfe\x00")
    assert refusal(file) == ["queue.yaml: is not UTF-8 text"]


def test_without_pyyaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    (line,) = refusal(write(tmp_path, queue()))
    assert "needs PyYAML: install llmqueue with the extra [cli]" in line
