"""Names of keys. All keys of a budget share one hash tag, so one script can see all it must."""

from __future__ import annotations

import hashlib
import secrets
import time

REGISTRY = "llmqueue:registry"
WAKE_CHANNEL = "llmqueue:wake"
CODE_LENGTH = 4
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_DIGITS = 18
_TIME_DIGITS = 8


def prefix(budget: str) -> str:
    """Start of every key of a budget, hash tag included."""
    return f"{{q:{budget}}}:"


def _base62(number: int, digits: int) -> str:
    out: list[str] = []
    for _ in range(digits):
        number, rest = divmod(number, 62)
        out.append(_ALPHABET[rest])
    return "".join(reversed(out))


def new_code() -> str:
    """A budget's code: the first four characters of its jobs' ids."""
    return _base62(secrets.randbits(24), CODE_LENGTH)


def new_job_id(code: str) -> str:
    """A fresh id: budget code, milliseconds (ids of one producer sort by time), randomness."""
    random_part = _base62(secrets.randbits(64), _DIGITS - _TIME_DIGITS)
    return code + _base62(time.time_ns() // 1_000_000, _TIME_DIGITS) + random_part


def keyed_job_id(code: str, *, queue: str, tenant: str, key: str) -> str:
    """The id that an idempotency key stands for: the same wherever it is made."""
    digest = hashlib.sha256("\x1f".join((queue, tenant, key)).encode()).digest()
    return code + _base62(int.from_bytes(digest), _DIGITS)


def new_batch_id(code: str) -> str:
    """A fresh id; its `-` after the budget's code tells it from a job's."""
    return f"{code}-{new_job_id(code)[CODE_LENGTH:]}"


def keyed_batch_id(code: str, *, queue: str, key: str) -> str:
    """The id that a producer's own key stands for."""
    return f"{code}-{keyed_job_id(code, queue=queue, tenant='', key=key)[CODE_LENGTH:]}"


def fingerprint(payload: bytes) -> str:
    """Digest of a job's raw bytes, compared when its idempotency key comes again."""
    return hashlib.sha256(payload).hexdigest()[:32]
