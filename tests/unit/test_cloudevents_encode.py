"""What is written is read again as the same event."""

import json
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import get_args

import pytest

from inbox.core.cloudevents import PREFIXES, Encoded, Mode, Prefix, decode, encode
from inbox.core.delivery import Delivery
from inbox.core.event import CloudEvent
from inbox.core.timestamps import parse_timestamp
from tests.unit.cloudevents_cases import FETCHER_SHAPES, JSON, fetcher

MODES: tuple[Mode, ...] = get_args(Mode)
EVENT = CloudEvent("1", "/s", "t")


def read(encoded: Encoded) -> CloudEvent:
    return decode(Delivery(encoded.body, encoded.headers, encoded.content_type))


class Draw:
    """Random events that CloudEvents 1.0 allows, some of them odd."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - test data

    def text(self, least: int = 1) -> str:
        alphabet = [
            "a",
            "Z",
            "0",
            " ",
            '"',
            "\\",
            "{",
            "%",
            "\xa0",
            "é",
            "e\u0301",
            "\u2028",
            "\ufffd",
            "日",
            "🎉",
            "\U0010fffd",
        ]
        return "".join(self.random.choices(alphabet, k=self.random.randint(least, 12)))

    def timestamp(self) -> str:
        fraction = "".join(self.random.choices("0123456789", k=self.random.randint(0, 9)))
        zone = self.random.choice(["Z", "z", "+00:00", "-00:00", "-03:00", "+05:45", "+14:00"])
        day = f"{self.random.randint(1, 9998):04}-{self.random.randint(1, 12):02}-{self.random.randint(1, 28):02}"
        clock = f"{self.random.randint(0, 23):02}:{self.random.randint(0, 59):02}:{self.random.randint(0, 59):02}"
        return f"{day}{self.random.choice('Tt')}{clock}{'.' if fraction else ''}{fraction}{zone}"

    def data(self, media_type: str | None) -> bytes | None:
        if self.random.random() < 0.2:
            return None
        if media_type is not None and "json" in media_type.lower():
            value = {self.text(): [self.text(0), 2**80, -1.5e300, None, True, {}], "": []}
            padding = self.random.choice(["", "", " ", "\n\t"])
            text = json.dumps(value, ensure_ascii=self.random.random() < 0.5, indent=self.random.choice([None, 1]))
            return f"{padding}{text}{padding}".encode()
        return self.random.randbytes(self.random.randint(1, 40))

    def extension(self) -> str | int | bool:
        values: list[str | int | bool] = [self.text(0), 0, -1, 2**31 - 1, -(2**31), True, False]
        return self.random.choice(values)

    def event(self) -> CloudEvent:
        media_types = [None, JSON, "Application/X+JSON; a=B", "text/plain; charset=latin1", "application/octet-stream"]
        media_type = self.random.choice(media_types)
        time_text = self.random.choice([None, self.timestamp()])
        names = ["a", "tenantid", "x1", "0", "z" * 30]
        return CloudEvent(
            id=self.text(),
            source=self.random.choice(["/s", "urn:x:%41", "//h/p?q#f", "http://[::1]:80/", "1-555"]),
            type=self.text(),
            time=None if time_text is None else parse_timestamp(time_text),
            time_text=time_text,
            subject=self.random.choice([None, self.text()]),
            datacontenttype=media_type,
            dataschema=self.random.choice([None, "https://x/y.json#/z"]),
            extensions={name: self.extension() for name in self.random.sample(names, self.random.randint(0, 4))},
            data=self.data(media_type),
        )


@pytest.mark.parametrize("seed", range(20))
def test_any_event_comes_back_in_every_mode_and_prefix(seed: int) -> None:
    draw = Draw(seed)
    for _ in range(25):
        event = draw.event()
        assert read(encode(event, "structured")) == event
        for prefix in PREFIXES:
            assert read(encode(event, "binary", prefix, octets=draw.random.random() < 0.5)) == event


@pytest.mark.parametrize("shape", FETCHER_SHAPES)
@pytest.mark.parametrize("mode", MODES)
def test_a_genuine_event_comes_back(shape: str, mode: Mode) -> None:
    event = decode(fetcher(shape))
    assert read(encode(event, mode)) == event


@pytest.mark.parametrize("prefix", PREFIXES)
def test_one_prefix_is_written_and_text_as_text(prefix: Prefix) -> None:
    event = replace(EVENT, subject="é", extensions={"n": 5, "b": True}, datacontenttype="text/plain", data=b"x")
    encoded = encode(event, prefix=prefix)
    assert encoded.headers == {
        f"{prefix}specversion": "1.0",
        f"{prefix}id": "1",
        f"{prefix}source": "/s",
        f"{prefix}type": "t",
        f"{prefix}subject": "é",
        f"{prefix}n": 5,
        f"{prefix}b": True,
    }
    assert (encoded.content_type, encoded.body) == ("text/plain", b"x")


def test_text_is_written_as_octets_when_asked() -> None:
    headers = encode(replace(EVENT, subject="é", extensions={"n": 5}), octets=True).headers
    assert headers["ce-subject"] == bytearray("é".encode())
    assert headers["ce-n"] == 5


def test_structured_mode_splices_json_octet_for_octet() -> None:
    encoded = encode(replace(EVENT, datacontenttype=JSON, data=b'{"a": 1.0}'), "structured")
    assert encoded.headers == {}
    assert encoded.content_type == "application/cloudevents+json"
    assert encoded.body == (
        b'{"specversion":"1.0","id":"1","source":"/s","type":"t",'
        b'"datacontenttype":"application/json","data":{"a": 1.0}}'
    )


def test_a_repr_shows_no_content() -> None:
    assert repr(encode(EVENT)) == "<Encoded with 4 headers>"


def test_a_time_without_text_is_written_in_utc() -> None:
    event = replace(EVENT, time=datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=1))))
    back = read(encode(event))
    assert back.time_text == "2026-01-02T02:00:00Z"
    assert back.time == event.time


@pytest.mark.parametrize("mode", MODES)
def test_an_empty_payload_counts_as_none(mode: Mode) -> None:
    assert read(encode(replace(EVENT, datacontenttype=JSON, data=b""), mode)).data is None


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "event",
    [
        replace(EVENT, id=""),
        replace(EVENT, id="secret\n"),
        replace(EVENT, id="secret\ud800"),
        replace(EVENT, source="secret\n"),
        replace(EVENT, type=""),
        replace(EVENT, specversion="0.3"),
        replace(EVENT, subject=""),
        replace(EVENT, dataschema="secret"),
        replace(EVENT, datacontenttype="secret"),
        replace(EVENT, datacontenttype="secret", data=b"x"),
        replace(EVENT, datacontenttype=JSON, data=b"{secret"),
        replace(EVENT, datacontenttype=JSON, data=b'1,"id":"secret"'),
        replace(EVENT, datacontenttype=JSON, data=b" {secret"),
        replace(EVENT, time_text="secret"),
        replace(EVENT, time=datetime(2026, 1, 1, tzinfo=UTC), time_text="2026-01-01T00:00:01Z"),
        replace(EVENT, time=datetime(2026, 1, 1)),  # noqa: DTZ001 - the case
        replace(EVENT, extensions={"secret-name": "x"}),
        replace(EVENT, extensions={"Secret": "x"}),
        replace(EVENT, extensions={"data": "x"}),
        replace(EVENT, extensions={"id": "secret"}),
        replace(EVENT, extensions={"n": 2**31}),
    ],
)
def test_what_is_no_cloudevent_is_not_written_and_not_repeated(event: CloudEvent, mode: Mode) -> None:
    with pytest.raises(ValueError) as refusal:  # noqa: PT011 - the message is looked at below
        encode(event, mode)
    assert "ecret" not in str(refusal.value)


def test_an_event_about_an_event_needs_structured_mode() -> None:
    event = replace(EVENT, datacontenttype="application/cloudevents+json", data=b"{}")
    assert read(encode(event, "structured")) == event
    with pytest.raises(ValueError, match="no CloudEvent can be written"):
        encode(event)
