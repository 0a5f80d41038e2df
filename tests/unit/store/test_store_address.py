"""Redis URLs of every form."""

from __future__ import annotations

import pytest

from llmqueue.errors import UsageError
from llmqueue.store.address import Address, carries_credentials, parse_address, redacted
from llmqueue.store.topology import open_topology

SENTINELS = (("a", 1), ("b", 26379), ("::1", 3))


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://h:1/2", Address("server", "redis://h:1/2", (), "", 0)),
        ("unix:///run/s", Address("server", "unix:///run/s", (), "", 0)),
        ("unix:///run/s?min_replicas=1", Address("server", "unix:///run/s", (), "", 1)),
        (
            "redis://h?min_replicas=2&ssl_ca_certs=/x",
            Address("server", "redis://h?ssl_ca_certs=%2Fx", (), "", 2),
        ),
        (
            "redis+sentinel://u:p%40@a:1,b,[::1]:3/main",
            Address("sentinel", "redis://u:p%40@a:1/0", SENTINELS, "main", 1),
        ),
        (
            "rediss+sentinel://a:1/main/3?min_replicas=0&sentinel_password=s",
            Address("sentinel", "rediss://a:1/3", (("a", 1),), "main", 0, None, "s"),
        ),
        (
            "redis+cluster://:p@a:1,b:2",
            Address("cluster", "redis://:p@a:1/0", (("a", 1), ("b", 2)), "", 0),
        ),
        (
            "rediss+cluster://a/0?min_replicas=1",
            Address("cluster", "rediss://a:6379/0", (("a", 6379),), "", 1),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_forms(url: str, expected: Address) -> None:
    assert parse_address(url) == expected


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://x", "must begin with one of redis://"),
        ("geheim", "must begin with"),
        ("redis://", "a host is missing"),
        ("redis://:geheim@h:port", "'port'"),
        ("redis+sentinel://:geheim@a:1,b:2", "/<name of the primary>"),
        ("redis+sentinel://a:1/main/x", "the database must be a number"),
        ("redis+sentinel://a:1,,b:2/main", "a host is missing between its commas"),
        ("redis+sentinel://:geheim@a:x/main", "'x'"),
        ("redis+cluster://:geheim@a:1/3", "a cluster has database 0 only"),
        ("redis://h?min_replicas=many", "min_replicas must be a number"),
        ("redis://h?min_replicas=&password=geheim", "min_replicas must be a number"),
    ],
)
def test_what_is_none(url: str, why: str) -> None:
    with pytest.raises(UsageError, match=why.replace("/", r"\/")) as error:
        parse_address(url)
    assert "geheim" not in str(error.value)


@pytest.mark.parametrize("option", ["socket_timeout=soon", "unheard_of=1"])
@pytest.mark.parametrize(
    "form", ["redis://:geheim@h", "redis+sentinel://:geheim@a,b/m", "redis+cluster://:geheim@a,b"]
)
async def test_an_option_that_is_none(form: str, option: str) -> None:
    with pytest.raises(UsageError, match="is not a Redis URL") as error:
        open_topology(parse_address(f"{form}?{option}"))
    assert "geheim" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://u:p@h:1/0", "redis://***@h:1/0"),
        ("redis+sentinel://u:p@a:1,b:2,c:3/m/0", "redis+sentinel://***@a:1,b:2,c:3/m/0"),
        ("redis+cluster://:p@a:1,b:2", "redis+cluster://***@a:1,b:2"),
        ("redis+sentinel://a:1/m?sentinel_password=p", "redis+sentinel://a:1/m?***"),
        ("redis://a:p@b,c:p@d/0", "redis://***@d/0"),
    ],
)
def test_passwords_are_not_shown(url: str, shown: str) -> None:
    assert redacted(url) == shown


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://h:1/0", False),
        ("unix:///run/s", False),
        ("redis+sentinel://a:1,b:2/m", False),
        ("redis+sentinel://:p@a:1,b:2/m", True),
        ("redis+sentinel://a:1,b:2/m?sentinel_password=p", True),
        ("redis+cluster://a:1,b:2?username=u", True),
    ],
)
def test_credentials_are_found(url: str, expected: bool) -> None:
    assert carries_credentials(url) is expected
