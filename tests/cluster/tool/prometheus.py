"""Prometheus, its operator and the operator's CRDs: built once a test asks for them."""

import shutil
from pathlib import Path

from cluster.tool import binaries, layout
from cluster.tool.command import run, say
from cluster.tool.errors import CommandFailed, Incapable

# Two modules, as they want different versions of Kubernetes' client.
_PROMETHEUS = layout.DEFINITIONS / "prometheus"
_OPERATOR = layout.DEFINITIONS / "prometheus-operator"
_OPERATOR_SOURCE = "github.com/prometheus-operator/prometheus-operator"
PROGRAMS = ("prometheus", "prometheus-operator", "prometheus-config-reloader")
# Of the ten those that the operator asks for, and that monitors and rules are made of.
_CRDS = ("podmonitors", "probes", "prometheuses", "prometheusrules", "servicemonitors")
# A third of Prometheus is clients of clouds in which it could look for targets.
_TAGS = "remove_all_sd,enable_kubernetes_sd"


def provide() -> None:
    """Fills `.cluster/bin` and the folder of the CRDs; costs nothing where they are filled."""
    binaries.renew(
        "prometheus",
        [*(layout.BIN / program for program in PROGRAMS), layout.PROMETHEUS_CRDS],
        _make,
        sources=[
            module / name for module in (_PROMETHEUS, _OPERATOR) for name in ("go.mod", "go.sum")
        ],
    )


def _make() -> None:
    _build()
    _copy_crds()


def _build() -> None:
    say("Building Prometheus and its operator: six minutes or more the first time")
    prometheus, operator, reloader = (layout.BIN / program for program in PROGRAMS)
    package = "github.com/prometheus/prometheus/cmd/prometheus"
    binaries.compiled(_PROMETHEUS, prometheus, package, tags=_TAGS)
    binaries.compiled(_OPERATOR, operator, f"{_OPERATOR_SOURCE}/cmd/operator")
    binaries.compiled(_OPERATOR, reloader, f"{_OPERATOR_SOURCE}/cmd/prometheus-config-reloader")


def _copy_crds() -> None:
    """They are part of the operator's module, in the very version of the program."""
    try:
        source = run(
            *(binaries.go(), "list", "-m", "-f={{.Dir}}", _OPERATOR_SOURCE),
            environment={"GOFLAGS": "-mod=readonly"},
            folder=_OPERATOR,
        )
    except CommandFailed as exc:
        raise Incapable(f"the Prometheus operator's CRDs are missing: {exc}") from exc
    folder = Path(source.strip()) / "example" / "prometheus-operator-crd"
    layout.PROMETHEUS_CRDS.mkdir(exist_ok=True)
    for crd in _CRDS:
        # copyfile: the module's files are read-only, and a later version must replace the copies.
        shutil.copyfile(
            folder / f"monitoring.coreos.com_{crd}.yaml", layout.PROMETHEUS_CRDS / f"{crd}.yaml"
        )
