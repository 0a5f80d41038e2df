"""ClusterError
├── Incapable       this machine can't run a cluster
├── Foreign         another checkout's cluster runs here
├── ClusterDown     a running cluster was asked for
├── NotReady        a part did not come up in time
└── CommandFailed   a program ended with an error
"""


class ClusterError(Exception):
    """Anything the tool can say in one sentence."""


class Incapable(ClusterError):
    """This machine can't run a cluster; the message says why."""


class Foreign(ClusterError):
    """Another checkout's cluster runs on this machine."""


class ClusterDown(ClusterError):
    """No cluster of this checkout runs."""


class NotReady(ClusterError):
    """A part of the cluster did not become ready in time."""


class CommandFailed(ClusterError):
    """A program ended with an error; the message holds the end of what it said."""
