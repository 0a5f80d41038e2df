"""Money, lists without repeats, and what a section refuses."""

from __future__ import annotations

from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from llmqueue.spec.calls import Limits
from llmqueue.spec.explain import explain
from llmqueue.spec.fields import Problem, Section, nano_usd, unique, usd_text


@pytest.mark.parametrize(
    ("text", "nano"),
    [
        pytest.param("0", 0, id="nothing"),
        pytest.param("0.05", 50_000_000, id="five cents"),
        pytest.param("0.054399", 54_399_000, id="exact"),
        pytest.param("0.000000001", 1, id="one nano-dollar"),
        pytest.param("1.10", 1_100_000_000, id="trailing zero"),
        pytest.param("999999999.999999999", 999_999_999_999_999_999, id="largest"),
    ],
)
def test_money_is_exact(text: str, nano: int) -> None:
    assert nano_usd(text) == nano


@pytest.mark.parametrize(
    "value", ["", "-1", "+1", "1.", ".5", "1e3", "01", "1,5", "0.0000000001", "1\n", 5, 0.05, None]
)
def test_what_is_no_money(value: object) -> None:
    with pytest.raises(ValueError, match="decimal number of US dollars in quotes"):
        nano_usd(value)


@given(st.integers(min_value=0, max_value=10**18 - 1))
def test_money_survives_the_way_out_and_in(nano: int) -> None:
    assert nano_usd(usd_text(nano)) == nano


class Item(Section):
    name: str
    kind: str = ""


class Holder(Section):
    words: Annotated[tuple[str, ...], *unique()] = ()
    items: Annotated[tuple[Item, ...], *unique("name", "kind")] = ()

    def problems(self):  # type: ignore[no-untyped-def]
        if "bad" in self.words:
            yield Problem("words", "must be good")
        if len(self.words) > 2:
            yield Problem("words", "must be few")


def test_repeats_are_by_the_named_fields() -> None:
    same_name = [{"name": "a", "kind": "x"}, {"name": "a", "kind": "y"}]
    assert len(Holder.model_validate({"items": same_name}).items) == 2
    with pytest.raises(ValidationError, match="a, x is there twice"):
        Holder.model_validate({"items": [same_name[0], same_name[0]]})
    with pytest.raises(ValidationError, match="b is there twice"):
        Holder.model_validate({"words": ["a", "b", "b"]})


def test_all_broken_rules_are_told_at_once() -> None:
    with pytest.raises(ValidationError) as caught:
        Holder.model_validate({"words": ["bad", "b", "c"]})
    (error,) = caught.value.errors()
    assert error["ctx"]["problems"] == (
        Problem("words", "must be good"),
        Problem("words", "must be few"),
    )
    assert error["msg"] == "words: must be good; words: must be few"


def test_a_section_cannot_be_changed() -> None:
    holder = Holder()
    with pytest.raises(ValidationError, match="frozen"):
        holder.words = ("a",)  # type: ignore[misc]


@pytest.mark.parametrize(
    "zone", ["UTC", "America/Los_Angeles", "America/Argentina/Buenos_Aires", "Etc/GMT+8"]
)
def test_time_zones(zone: str) -> None:
    assert Limits.model_validate({"dayTimeZone": zone}).day_time_zone == zone


@pytest.mark.parametrize(
    "zone", ["America/Los Angeles", "Mars/Base", "America", "../etc/passwd", "", "/UTC", "Z" * 65]
)
def test_what_is_no_time_zone_is_refused(zone: str) -> None:
    with pytest.raises(ValidationError):
        Limits.model_validate({"dayTimeZone": zone})


def test_an_unknown_time_zone_is_told_in_a_sentence() -> None:
    with pytest.raises(ValidationError) as caught:
        Limits.model_validate({"dayTimeZone": "America/Los_Angelos"})
    (line,) = explain(caught.value)
    assert line == (
        'dayTimeZone: must be the name of an IANA time zone, like "America/Los_Angeles": this one'
        ' is not known, got "America/Los_Angelos"'
    )
