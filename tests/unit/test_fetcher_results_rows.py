"""The rows of a result: strict, exact, and read through a window that may end anywhere."""

import json
import random
from decimal import Decimal
from typing import Any

import pytest

from inbox.fetcher import rows
from inbox.fetcher.result_errors import ResultMalformed
from inbox.fetcher.rows import scan


def read(text: str | bytes) -> list[tuple[str, str, Any]]:
    return list(scan(memoryview(text.encode() if isinstance(text, str) else text)))


def row_of(value: str) -> str:
    return f'{{"a":{{"t":[{{"x":{value}}}]}}}}'


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{}", []),
        (' {\n\t"a" : { } }\r\n', []),
        (
            '{"a":{"t":[]},"b":{"t":[],"u":[{}]}}',
            [("a", "t", None), ("b", "t", None), ("b", "u", None), ("b", "u", {})],
        ),
        ('{"":{"a.b":[{"x":{"y":[1,null,true]}}]}}', [("", "a.b", None), ("", "a.b", {"x": {"y": [1, None, True]}})]),
        ('{"a":{"t":[{"n":-0,"d":1.50}]}}', [("a", "t", None), ("a", "t", {"n": 0, "d": Decimal("1.50")})]),
        ('{"a\\u0000":{"\\ud83d\\ude00":[]}}', [("a\0", "\N{GRINNING FACE}", None)]),
    ],
)
def test_the_agreed_shape(text: str, found: list[Any]) -> None:
    assert read(text) == found


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "[]", "null", "1", '"a"', "{", '{"a"', '{"a":', '{"a":{', '{"a":{}', '{"a":{}}x', "{}{}", "{}\0"),
        *('{"a":[]}', '{"a":null}', '{"a":{"t":{}}}', '{"a":{"t":null}}', '{"a":{"t":[1]}}', '{"a":{"t":[[]]}}'),
        *('{"a":{"t":[{}', '{"a":{"t":[{},]}}', '{"a":{"t":[{}{}]}}', '{"a":{},}', '{,"a":{}}', "{a:{}}", "{'a':{}}"),
        *('{"a":{},"a":{}}', '{"a":{"t":[],"t":[]}}', '{"a":{"t":[{"x":1,"x":2}]}}', '{"a" {}}', '{"a":{} "b":{}}'),
        *(
            '{"a":{"t":[{"x":NaN}]}}',
            '{"a":{"t":[{"x":-Infinity}]}}',
            '{"a":{"t":[{"x":01}]}}',
            '{"a":{"t":[{"x":.5}]}}',
        ),
        '{"a":{"t":[{"x":"\t"}]}}',
        row_of("9" * 5000),
        '{"a":{"t":[{"x":1e99999999999999999999}]}}',
        row_of("[" * 100_000 + "1" + "]" * 100_000),
        row_of("[" * 100_000),
        "\ufeff{}",
        b'{"a\xff":{}}',
        b'{"a":{"t":[{"x":"\xed\xa0\x80"}]}}',
        b'{"a":{"t":[{"x":"\xc3',
        "{}".encode("utf-16"),
    ],
    ids=lambda text: repr(text[:40]),
)
def test_anything_else_is_malformed(text: str | bytes) -> None:
    with pytest.raises(ResultMalformed):
        read(text)


@pytest.mark.parametrize("window", [1, 2, 3, 7, 100])
def test_the_window_may_end_anywhere(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_WINDOW", window)
    draw = random.Random(window)  # noqa: S311 - test data
    texts = ["", "é", "\N{GRINNING FACE}", '"\\', "\u2028", "x" * 50, "}],{["]
    document = {
        f"source {number}": {
            f"t.{table}{draw.choice(texts)}": [
                {"n": draw.getrandbits(80), "s": draw.choice(texts), "l": [{"d": None}] * draw.randrange(3)}
                for _ in range(draw.randrange(5))
            ]
            for table in range(3)
        }
        for number in range(3)
    }
    expected = [
        (source, table, row)
        for source, tables in document.items()
        for table, found in tables.items()
        for row in [None, *found]
    ]
    for ascii_only, indent in ((True, None), (False, 2)):
        assert read(json.dumps(document, ensure_ascii=ascii_only, indent=indent)) == expected


def test_a_row_has_a_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_WINDOW", 10)
    monkeypatch.setattr(rows, "_LONGEST_ROW", 100)
    assert len(read(row_of('"' + "y" * 60 + '"'))) == 2
    with pytest.raises(ResultMalformed, match="more than 100 characters"):
        read(row_of('"' + "y" * 500 + '"'))


def test_what_is_broken_at_its_end_is_found_at_its_end() -> None:
    found = scan(memoryview(b'{"a":{"t":[{"x":1},{"x":2},{"x":}]}}'))
    assert [next(found)[2], next(found)[2], next(found)[2]] == [None, {"x": 1}, {"x": 2}]
    with pytest.raises(ResultMalformed):
        next(found)
