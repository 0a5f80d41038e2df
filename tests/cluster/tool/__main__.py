"""python -m cluster.tool up|down|images|tools|prometheus|status"""

import argparse
import sys

from cluster.tool import binaries, cluster, layout
from cluster.tool.errors import ClusterError, Incapable

_INCAPABLE = 3


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="cluster.tool", description="A real cluster for the tests."
    )
    commands = {
        "up": "start it, or bring a running one's images up to date; prints its kubeconfig's path",
        "down": "stop it and leave nothing behind",
        "images": "build the images that changed",
        "tools": "fetch kubectl and helm; prints their folder",
        "prometheus": "bring Prometheus and its operator to a running one; prints their CRDs' folder",
        "status": "list its processes; ends with 1 if it is not healthy",
    }
    parser.add_argument(
        "command", choices=commands, help="; ".join(f"{k}: {v}" for k, v in commands.items())
    )
    try:
        return _run(parser.parse_args().command)
    except Incapable as exc:
        print(f"No cluster on this machine: {exc}", file=sys.stderr)
        return _INCAPABLE
    except ClusterError as exc:
        print(f"cluster: {exc}", file=sys.stderr)
        return 1


def _run(command: str) -> int:
    if command == "up":
        print(cluster.up().kubeconfig)
    elif command == "down":
        cluster.down()
    elif command == "images":
        cluster.build_images()
    elif command == "tools":
        binaries.provide_tools()
        print(layout.BIN)
    elif command == "prometheus":
        print(cluster.add_prometheus())
    else:
        for name, state in cluster.status().items():
            print(f"{name} {state}")
        healthy = layout.KUBECONFIG.exists() and cluster.Cluster().healthy()
        print("healthy" if healthy else "not healthy")
        return 0 if healthy else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
