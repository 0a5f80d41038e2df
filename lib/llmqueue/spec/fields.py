"""The kinds of values that fields of an LLMQueue hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    Strict,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from llmqueue.days import known_zone

NANO_PER_USD = 1_000_000_000
USD_PATTERN = r"^(0|[1-9][0-9]{0,8})(\.[0-9]{1,9})?$"
BASE_URL_PATTERN = r"^https?://[^\s/?#\\]+(/[^\s?#\\]*)?$"
DNS_LABEL_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_SUBDOMAIN_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
SECRET_KEY_PATTERN = r"^[-._a-zA-Z0-9]+$"
MODULE_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$"
LABEL_PATTERN = r"^[^\x00-\x1f\x7f]+$"
ENV_NAME_PATTERN = r"^[-._a-zA-Z][-._a-zA-Z0-9]*$"
TIME_ZONE_PATTERN = r"^[A-Za-z][-+A-Za-z0-9_]*(/[-+A-Za-z0-9_]+)*$"
REASON_PATTERN = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"

SHAPES = {
    USD_PATTERN: 'a decimal number of US dollars in quotes, like "12.50"',
    BASE_URL_PATTERN: "an http:// or https:// URL without query and fragment",
    DNS_LABEL_PATTERN: "lower-case letters, digits and '-', beginning and ending with one of the"
    " first two",
    DNS_SUBDOMAIN_PATTERN: "a Kubernetes name: lower-case letters, digits, '-' and '.'",
    SECRET_KEY_PATTERN: "letters, digits, '-', '_' and '.'",
    MODULE_PATTERN: "the dotted name of a Python module",
    LABEL_PATTERN: "text without control characters",
    ENV_NAME_PATTERN: "the name of an environment variable",
    TIME_ZONE_PATTERN: 'the name of an IANA time zone, like "America/Los_Angeles"',
    REASON_PATTERN: "one CamelCase word",
}
"""Pattern → what it asks for, in words."""


BROKEN_RULES = "broken_rules"
"""Type of the validation error that carries Problems."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A rule between fields that is broken. `field` is relative to the section, as users write it;
    `message` is word for word the message of the CRD's rule."""

    field: str
    message: str


class Section(BaseModel):
    """A part of the resource: immutable, camelCase outside, no unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel)

    def problems(self) -> Iterator[Problem]:
        """The section's rules that are broken: what the CRD's CEL rules say, here in Python."""
        yield from ()

    @model_validator(mode="after")
    def _keep_rules(self) -> Self:
        if problems := tuple(self.problems()):
            text = "; ".join(f"{problem.field}: {problem.message}" for problem in problems)
            raise PydanticCustomError(BROKEN_RULES, "{text}", {"text": text, "problems": problems})
        return self


def nano_usd(value: object) -> int:
    """Decimal string of US dollars → integer nano-dollars, exactly. Raises ValueError."""
    if not isinstance(value, str) or not re.fullmatch(USD_PATTERN, value):
        raise ValueError(f"must be {SHAPES[USD_PATTERN]}")
    whole, _, fraction = value.partition(".")
    return int(whole) * NANO_PER_USD + int(fraction.ljust(9, "0"))


def usd_text(nano: int) -> str:
    """Integer nano-dollars → the shortest decimal string."""
    whole, fraction = divmod(nano, NANO_PER_USD)
    return f"{whole}.{fraction:09d}".rstrip("0").rstrip(".") if fraction else str(whole)


def time_zone(name: str) -> str:
    """A time zone that is known here. Raises ValueError."""
    if not known_zone(name):
        raise ValueError(f"must be {SHAPES[TIME_ZONE_PATTERN]}: this one is not known")
    return name


NanoUsd = Annotated[
    int,
    BeforeValidator(nano_usd),
    PlainSerializer(usd_text, return_type=str),
    WithJsonSchema({"type": "string", "pattern": USD_PATTERN, "maxLength": 19}),
]
"""Money: a decimal string of US dollars in the resource, nano-dollars in Python."""

# Strict: YAML's `"60"` and `true` are no numbers for Kubernetes either.
Int = Annotated[int, Strict()]
Flag = Annotated[bool, Strict()]

Seconds = Annotated[Int, Field(ge=1, le=86_400)]
"""Up to a day."""
SecondsOrZero = Annotated[Int, Field(ge=0, le=86_400)]
LongSeconds = Annotated[Int, Field(ge=1, le=31_536_000)]
"""Up to a year."""
Requests = Annotated[Int, Field(ge=1, le=1_000_000_000)]
Tokens = Annotated[Int, Field(ge=1, le=1_000_000_000_000)]
Replicas = Annotated[Int, Field(ge=0, le=10_000)]

DnsLabel = Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=DNS_LABEL_PATTERN)]
DnsSubdomain = Annotated[
    str, StringConstraints(min_length=1, max_length=253, pattern=DNS_SUBDOMAIN_PATTERN)
]
SecretKey = Annotated[
    str, StringConstraints(min_length=1, max_length=253, pattern=SECRET_KEY_PATTERN)
]
BaseUrl = Annotated[str, StringConstraints(min_length=1, max_length=2048, pattern=BASE_URL_PATTERN)]
Label = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=LABEL_PATTERN)]
TimeZone = Annotated[
    str,
    StringConstraints(min_length=1, max_length=64, pattern=TIME_ZONE_PATTERN),
    AfterValidator(time_zone),
]
"""Kubernetes knows the shape only: an unknown zone is refused by those who read the resource."""
ModelName = Annotated[str, StringConstraints(min_length=1, max_length=256)]


def _key(item: object, names: tuple[str, ...]) -> tuple[object, ...]:
    return tuple(getattr(item, name) for name in names) if names else (item,)


def unique(*names: str) -> tuple[AfterValidator, Any]:
    """Annotations of a list without repeats: by these fields of its items, else by the items.

    For Kubernetes they are list-type map and set, so that owners of single items can be told apart.
    """

    def check(items: tuple[Any, ...]) -> tuple[Any, ...]:
        seen: set[object] = set()
        for item in items:
            key = _key(item, names)
            if key in seen:
                raise ValueError(f"{', '.join(map(str, key))} is there twice: leave one out")
            seen.add(key)
        return items

    extra: dict[str, Any] = {"x-kubernetes-list-type": "map" if names else "set"}
    if names:
        extra["x-kubernetes-list-map-keys"] = list(names)
    return AfterValidator(check), Field(json_schema_extra=extra)


Opaque = dict[str, Any]
"""An object that Kubernetes defines and llmqueue passes on."""
