"""The strict accessor for text headers."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from inbox.core.headers import is_attribute_text, text_header, text_of
from inbox.errors import Undecodable


@pytest.mark.parametrize("octets", [bytes, bytearray, memoryview])
def test_octets_of_every_client_library_give_the_same_text(octets: type) -> None:
    assert text_header({"t": octets("é1".encode())}, "t") == "é1"


def test_text_stays_what_it_is() -> None:
    assert text_header({"t": " Ünïcode\n"}, "t") == " Ünïcode\n"
    assert text_header({"t": ""}, "t") == ""


def test_an_absent_header_is_none() -> None:
    assert text_header({"T": "1"}, "t") is None


@pytest.mark.parametrize(
    "value", [None, 1, True, 1.5, Decimal(1), datetime(2026, 1, 1, tzinfo=UTC), ["1"], {"a": "1"}, object()]
)
def test_whatever_is_no_text_is_refused(value: object) -> None:
    with pytest.raises(Undecodable, match="the header t is not text in UTF-8") as refusal:
        text_header({"t": value}, "t")
    assert refusal.value.code == "bad-header"


@pytest.mark.parametrize("octets", [b"\xff", b"\xed\xa0\x80", b"\xc0\xaf", b"a\xe2\x82"])
def test_octets_that_are_no_utf8_are_refused(octets: bytes) -> None:
    assert text_of(bytearray(octets)) is None


def test_text_that_has_no_utf8_form_is_refused() -> None:
    assert text_of("a\ud800") is None


@pytest.mark.parametrize(
    "character",
    [
        "\x00",
        "\t",
        "\n",
        "\x1f",
        "\x7f",
        "\x80",
        "\x9f",
        "\ud800",
        "\ufdd0",
        "\ufffe",
        "\U0001ffff",
        "\U0010fffe",
    ],
)
def test_what_no_attribute_may_hold(character: str) -> None:
    assert not is_attribute_text(f"a{character}b")


@pytest.mark.parametrize("text", ["", " ~", "\xa0é", "\ufdcf\ufdf0\ufffd", "\U0001fffd\U0010fffd", "日本語 🎉"])
def test_what_an_attribute_may_hold(text: str) -> None:
    assert is_attribute_text(text)
