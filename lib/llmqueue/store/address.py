"""Redis URLs: one server, servers watched by Sentinels, or a cluster.

redis://[user:password@]host:port/db              one server; rediss:// with TLS, unix:///path
redis+sentinel://[user:password@]host:port,host:port/<primary's name>/db
redis+cluster://[user:password@]host:port,host:port/
rediss+sentinel://, rediss+cluster://              the same with TLS

The query takes redis-py's connection options, `min_replicas` (replicas that have to acknowledge a
step of a Strict queue), and for Sentinels with a password of their own `sentinel_username` and
`sentinel_password`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from urllib.parse import SplitResult, parse_qs, parse_qsl, unquote, urlencode, urlsplit

from llmqueue.errors import UsageError

Kind = Literal["server", "sentinel", "cluster"]

_KINDS: dict[str, Kind] = {
    "redis": "server",
    "rediss": "server",
    "unix": "server",
    "redis+sentinel": "sentinel",
    "rediss+sentinel": "sentinel",
    "redis+cluster": "cluster",
    "rediss+cluster": "cluster",
}
_DEFAULT_PORTS: dict[Kind, int] = {"server": 6379, "sentinel": 26379, "cluster": 6379}
_OWN_OPTIONS = frozenset({"min_replicas", "sentinel_username", "sentinel_password"})
_CREDENTIALS = frozenset({"username", "password", "sentinel_username", "sentinel_password"})


@dataclass(frozen=True, slots=True)
class Address:
    """A Redis URL, taken apart."""

    kind: Kind
    url: str
    """For redis-py: one host and no option of ours; of many hosts the first."""
    hosts: tuple[tuple[str, int], ...]
    """Sentinels, or nodes of a cluster to begin with; empty for one server."""
    primary: str
    """What the Sentinels call it; empty otherwise."""
    min_replicas: int
    """How many replicas have to acknowledge a step of a Strict queue."""
    sentinel_username: str | None = None
    sentinel_password: str | None = None


def redacted(url: str) -> str:
    """The URL without its password, for people to read; of what is no URL only that."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "***"
    if not parts.netloc and parts.scheme != "unix":
        return "***"  # without a scheme a password is anywhere
    if "password=" in parts.query:
        parts = parts._replace(query="***")
    if "@" in parts.netloc:
        parts = parts._replace(netloc="***@" + parts.netloc.rsplit("@", 1)[1])
    return parts.geturl()


def carries_credentials(url: str) -> bool:
    """Whether a user or a password is in it. Raises UsageError for what is no Redis URL."""
    parse_address(url)
    parts = urlsplit(url)
    return "@" in parts.netloc or not _CREDENTIALS.isdisjoint(parse_qs(parts.query))


def parse_address(url: str) -> Address:
    """Raises UsageError for a URL that is none; its message holds no password."""
    try:
        return _parsed(url)
    except ValueError as exc:
        raise UsageError(f"{redacted(url)!r} is not a Redis URL: {exc}") from None


def _parsed(url: str) -> Address:
    parts = urlsplit(url)
    kind = _KINDS.get(parts.scheme)
    if kind is None:
        raise ValueError(f"it must begin with one of {', '.join(f'{name}://' for name in _KINDS)}")
    if not parts.netloc and parts.scheme != "unix":
        raise ValueError("a host is missing")
    own = {n: v for n, v in parse_qsl(parts.query, keep_blank_values=True) if n in _OWN_OPTIONS}
    rest = [pair for pair in parse_qsl(parts.query) if pair[0] not in _OWN_OPTIONS]
    parts = parts._replace(query=urlencode(rest))
    min_replicas = _count(own.get("min_replicas"), default=1 if kind == "sentinel" else 0)
    if kind == "server":
        _ = parts.port  # raises for what is no number
        plain = url.partition("?")[0] + (f"?{parts.query}" if rest else "")
        return Address(kind, plain, (), "", min_replicas)
    hosts = _hosts(parts, _DEFAULT_PORTS[kind])
    primary, database = _path(parts, kind)
    return Address(
        kind,
        _of_one_host(parts, hosts[0], database),
        hosts,
        primary,
        min_replicas,
        own.get("sentinel_username"),
        own.get("sentinel_password"),
    )


def _count(text: str | None, *, default: int) -> int:
    if text is None:
        return default
    if not text.isdecimal():
        raise ValueError(f"min_replicas must be a number of replicas, not {text!r}")
    return int(text)


def _hosts(parts: SplitResult, default_port: int) -> tuple[tuple[str, int], ...]:
    found: list[tuple[str, int]] = []
    for text in parts.netloc.rpartition("@")[2].split(","):
        one = urlsplit(f"redis://{text}")
        if not one.hostname:
            raise ValueError("a host is missing between its commas")
        found.append((one.hostname, one.port or default_port))
    return tuple(found)


def _path(parts: SplitResult, kind: Kind) -> tuple[str, int]:
    """The primary's name and the database."""
    segments = [unquote(segment) for segment in parts.path.split("/") if segment]
    if kind == "cluster":
        if segments not in ([], ["0"]):
            raise ValueError("a cluster has database 0 only; leave the path out")
        return "", 0
    if not 1 <= len(segments) <= 2:
        raise ValueError("its path must be /<name of the primary> or /<name of the primary>/<db>")
    database = segments[1] if len(segments) == 2 else "0"
    if not database.isdecimal():
        raise ValueError(f"the database must be a number, not {database!r}")
    return segments[0], int(database)


def _of_one_host(parts: SplitResult, host: tuple[str, int], database: int) -> str:
    credentials, at, _ = parts.netloc.rpartition("@")
    name = f"[{host[0]}]" if ":" in host[0] else host[0]
    one = parts._replace(
        scheme=parts.scheme.partition("+")[0],
        netloc=f"{credentials}{at}{name}:{host[1]}",
        path=f"/{database}",
    )
    return one.geturl()
