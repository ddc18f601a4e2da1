"""A credential, a lease's secret and a proof leave the program by no way that nobody meant."""

import copy
import dataclasses
import io
import json
import logging
import pickle
import pprint
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from inbox.core.proof import Proof, Secret, is_id, uint64_of

TEXT = "c2VjcmV0LXRoYXQtbm9ib2R5LW1heS1zZWUtMDAwMDA"


def proof(generation: int = 3) -> Proof:
    return Proof("a" * 32, "b" * 32, "c" * 32, generation, Secret(TEXT))


def raised_with(value: object) -> str:
    """The traceback of an error in a function that holds `value`, with every frame's variables."""

    def fail(value: object, *listed: object, **named: object) -> None:
        raise LookupError("no")

    with pytest.raises(LookupError) as caught:
        fail(value, value, named=value)
    shown = "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=True).format())
    assert "listed = (" in shown
    return shown


def logged(value: object) -> str:
    out = io.StringIO()
    logger = logging.getLogger("of this test")
    handler = logging.StreamHandler(out)
    logger.addHandler(handler)
    logger.warning("%s %r %s", value, value, [value])
    logger.warning(value)
    logger.removeHandler(handler)
    assert out.getvalue()
    return out.getvalue()


def variables(value: object) -> str:
    # Not `inspect.getmembers`: before Python 3.11.4 it stumbles over the `__weakref__` of a dataclass with slots.
    return repr([(name, getattr(value, name)) for name in dir(value) if not name.startswith("__")])


WAYS_OUT: list[Callable[[Any], object]] = [
    repr,
    str,
    ascii,
    format,
    lambda value: f"{value}{value!r}{value!s:>40}",
    lambda value: "%s %r" % (value, value),  # noqa: UP031 - a way out like others
    lambda value: repr([value, {value: value}, (value,)]),
    pprint.pformat,
    logged,
    raised_with,
    variables,
    lambda value: repr(copy.copy(value)),
    lambda value: repr(copy.deepcopy(value)),
    lambda value: repr(copy.deepcopy([value])),
    lambda value: str(ValueError(value)),
    lambda value: repr(KeyError(value)),
    lambda value: json.dumps([value], default=str),
    lambda value: repr(dir(value)),
]


@pytest.mark.parametrize("way", range(len(WAYS_OUT)))
@pytest.mark.parametrize("value", [Secret(TEXT), proof()], ids=["secret", "proof"])
def test_no_way_out_shows_a_secret(way: int, value: object) -> None:
    assert TEXT not in str(WAYS_OUT[way](value))


@pytest.mark.parametrize("value", [Secret(TEXT), proof(), [proof()]], ids=["secret", "proof", "list"])
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_nothing_is_pickled(value: object, protocol: int) -> None:
    with pytest.raises(TypeError) as caught:
        pickle.dumps(value, protocol)
    shown = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    assert TEXT not in "".join(shown.format())


def test_a_secret_is_formatted_as_it_is_shown() -> None:
    assert f"{Secret(TEXT):>20}" == "          <Secret …>"


def test_a_secret_has_no_state() -> None:
    with pytest.raises(TypeError):
        Secret(TEXT).__getstate__()
    with pytest.raises(TypeError):
        json.dumps(Secret(TEXT))
    assert not hasattr(Secret(TEXT), "__dict__")


def test_a_proof_as_a_dictionary_shows_nothing_either() -> None:
    assert TEXT not in repr(dataclasses.asdict(proof()))
    assert TEXT not in repr(dataclasses.astuple(proof()))


def test_a_secret_that_is_no_text_is_refused_without_showing_it() -> None:
    with pytest.raises(TypeError) as caught:
        Secret(TEXT.encode())  # type: ignore[arg-type] # what is tested
    ours = caught.tb.tb_next
    assert ours is not None
    assert TEXT not in repr(ours.tb_frame.f_locals)


def test_secrets_are_equal_by_their_text() -> None:
    assert Secret(TEXT) == Secret(TEXT) != Secret("other")
    assert hash(Secret(TEXT)) == hash(Secret(TEXT))
    assert Secret(TEXT) != TEXT
    assert Secret("é\ud800"[:1]) == Secret("é")
    assert Secret(TEXT).reveal() == TEXT
    assert copy.copy(Secret(TEXT)) == copy.deepcopy(Secret(TEXT)) == Secret(TEXT)


def test_a_proof_as_json_shows_its_secret_for_that_is_what_it_is_for() -> None:
    largest = proof(2**64 - 1)
    assert TEXT in largest.to_json()
    assert Proof.from_json(largest.to_json()) == largest


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "[" * 100_000,
        proof().to_json()[:-1] + ',"more":1}',
        proof().to_json().replace("a" * 32, "A" * 32),
        proof().to_json().replace('"3"', "3"),
        proof().to_json().replace('"3"', '"0"'),
        proof().to_json().replace('"3"', '"03"'),
        proof().to_json().replace(f'"{TEXT}"', "5"),
    ],
)
def test_what_is_no_proof_is_not_read_as_one_and_not_shown(text: str) -> None:
    with pytest.raises(ValueError, match="no proof") as caught:
        Proof.from_json(text)
    inner = caught.tb.tb_next
    assert inner is not None
    assert TEXT not in repr(inner.tb_frame.f_locals)
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("1", 1),
        ("18446744073709551615", 2**64 - 1),
        ("18446744073709551616", None),
        ("99999999999999999999", None),
        ("184467440737095516150", None),
        ("01", None),
        ("-1", None),
        ("+1", None),
        ("1e3", None),
        ("1.0", None),
        (" 1", None),
        ("1\n", None),
        ("\u0661", None),
        ("", None),
        (1, None),
    ],
)
def test_numbers_of_64_bits_have_one_spelling(text: object, number: int | None) -> None:
    assert uint64_of(text) == number


@pytest.mark.parametrize("value", ["a" * 31, "a" * 33, "A" * 32, "g" * 32, "a" * 32 + "\n", "", 5, None, b"a" * 32])
def test_what_is_no_id(value: object) -> None:
    assert not is_id(value)


def test_an_id() -> None:
    assert is_id("0123456789abcdef" * 2)
