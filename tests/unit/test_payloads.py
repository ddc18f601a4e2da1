"""Dataclasses made of an event's data: what is taken, what is refused, and what the refusal says."""

import dataclasses
import json
import random
import time
import typing
from collections.abc import Callable
from contextlib import suppress
from dataclasses import InitVar, dataclass, field, make_dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, ClassVar, Literal, NewType, Optional, Union
from uuid import UUID

import pytest
from typing_extensions import TypeAliasType

from inbox.core.delivery import Origin
from inbox.core.event import CloudEvent, Event
from inbox.core.records import InboxRecord
from inbox.errors import ConfigurationError, Refused, Undecodable
from inbox.runtime.payloads import decoder_of, is_payload_class

IDENTIFIER = UUID("12345678-1234-5678-1234-567812345678")
Cents = NewType("Cents", int)
Amount = TypeAliasType("Amount", Decimal)


class Currency(Enum):
    EUR = "eur"
    USD = "usd"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


def event_with(data: bytes | None, content_type: str | None = "application/json") -> Event:
    cloudevent = CloudEvent(id="1", source="/s", type="t", datacontenttype=content_type, data=data)
    return Event(cloudevent, InboxRecord("c", b"1"), Origin("", ""))


def one_field(annotation: object) -> type:
    return make_dataclass("Job", [("value", annotation)])


def decoded(kind: type, data: str | bytes) -> Any:
    octets = data.encode() if isinstance(data, str) else data
    return decoder_of(kind, "handler h")(event_with(octets))


def refused(kind: type, data: str | bytes) -> str:
    """What the refusal says."""
    with pytest.raises(Refused) as caught:
        decoded(kind, data)
    assert caught.value.code == "invalid-payload"
    return caught.value.detail


# ------------------------------------------------------------------ single values
TAKEN: list[tuple[Any, str, object]] = [
    (bool, "true", True),
    (int, "0", 0),
    (int, "-5", -5),
    (int, "9007199254740993", 2**53 + 1),
    (int, "1" * 400, int("1" * 400)),
    (float, "1", 1.0),
    (float, "-0.5e3", -500.0),
    (float, "1e-400", 0.0),
    (str, '""', ""),
    (str, '"é\\u0000\\ud83d\\ude00"', "é\x00😀"),
    (Decimal, "1.23456789012345678901234567890", Decimal("1.23456789012345678901234567890")),
    (Decimal, "12345678901234567890", Decimal(12345678901234567890)),
    (Decimal, '"-12.30"', Decimal("-12.30")),
    (Decimal, '"1e1000"', Decimal("1e1000")),
    (datetime, '"2026-01-02T03:04:05.5+02:00"', datetime(2026, 1, 2, 3, 4, 5, 500000, timezone(timedelta(hours=2)))),
    (date, '"2026-01-31"', date(2026, 1, 31)),
    (UUID, f'"{IDENTIFIER}"', IDENTIFIER),
    (UUID, '"ABCDEFAB-0000-0000-0000-ABCDEFABCDEF"', UUID("abcdefab-0000-0000-0000-abcdefabcdef")),
    (bytes, '"AP8="', b"\x00\xff"),
    (None, "null", None),
    (Currency, '"usd"', Currency.USD),
    (Level, "2", Level.HIGH),
    (Literal["a", 1, True, None], "true", True),  # noqa: PYI061 - as some write it
    (Literal[Currency.EUR], '"eur"', Currency.EUR),
    (Cents, "5", 5),
    (Amount, "0.1", Decimal("0.1")),
    (Annotated[int, "of cents"], "5", 5),
    ("int | None", "null", None),
    (Any, '{"a": [1.5, 1e999, null]}', {"a": [1.5, float("inf"), None]}),
    (object, "1.5", 1.5),
    (list[int], "[1, 2]", [1, 2]),
    (list, "[1.5]", [1.5]),
    (typing.List, "[1]", [1]),  # noqa: UP006 - as some write it
    (typing.List[int], "[1]", [1]),  # noqa: UP006
    (tuple[int, ...], "[1, 2]", (1, 2)),
    (tuple, "[1]", (1,)),
    (tuple[int, str], '[1, "a"]', (1, "a")),
    (tuple[()], "[]", ()),
    (dict[str, int], '{"a": 1}', {"a": 1}),
    (dict, '{"a": 1.5}', {"a": 1.5}),
    (Optional[int], "5", 5),  # noqa: UP045 - as some write it
    (Union[int, None], "null", None),  # noqa: UP007
    (int | float, "5", 5),
    (int | float, "5.0", 5.0),
    (datetime | str, '"soon"', "soon"),
    (datetime | str, '"2026-01-02T03:04:05Z"', datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
    (str | datetime, '"2026-01-02T03:04:05Z"', "2026-01-02T03:04:05Z"),
    (int | list[int] | dict[str, int], "[1]", [1]),
]


@pytest.mark.parametrize(("annotation", "data", "value"), TAKEN, ids=str)
def test_a_value_is_taken_as_its_annotation_says(annotation: Any, data: str, value: object) -> None:
    made = decoded(one_field(annotation), f'{{"value": {data}}}').value
    assert made == value
    assert type(made) is type(value)


HALF = "expected a text, got one with half of a surrogate pair"
REFUSED: list[tuple[Any, str, str]] = [
    (bool, "1", "expected a boolean, got an integer"),
    (int, "true", "expected an integer, got a boolean"),
    (int, '"5"', "expected an integer, got a text"),
    (int, "5.0", "expected an integer, got a decimal number"),
    (int, "null", "expected an integer, got null"),
    (float, "true", "expected a finite number, got a boolean"),
    (float, "1e400", "expected a finite number, got a decimal number that is none"),
    (float, "1" * 400, "expected a finite number, got an integer that is none"),
    (str, "5", "expected a text, got an integer"),
    (str, '"\\ud800"', HALF),
    (Decimal, '" 1"', "expected a decimal number, got a text that is none"),
    (Decimal, '"1_0"', "expected a decimal number, got a text that is none"),
    (Decimal, '"٣"', "expected a decimal number, got a text that is none"),
    (Decimal, '"NaN"', "expected a decimal number, got a text that is none"),
    (Decimal, '"1e99999999999999999999"', "expected a decimal number, got a text that is none"),
    (Decimal, "1e999999999", "expected a decimal number, got a decimal number that is none"),
    (Decimal, "1e-1001", "expected a decimal number, got a decimal number that is none"),
    (datetime, '"2026-01-02T03:04:05"', "expected an RFC 3339 date-time, got a text that is none"),
    (datetime, "1767323045", "expected an RFC 3339 date-time, got an integer"),
    (date, '"20260131"', "expected a date such as 2026-01-31, got a text that is none"),
    (date, '"2026-02-30"', "expected a date such as 2026-01-31, got a text that is none"),
    (UUID, f'"{{{IDENTIFIER}}}"', "expected a UUID, got a text that is none"),
    (bytes, '"AP8"', "expected base64, got a text that is none"),
    (bytes, '"A\\nP8="', "expected base64, got a text that is none"),
    (bytes, '"é"', "expected base64, got a text that is none"),
    (Currency, '"EUR"', 'expected one of "eur", "usd", got a text that is none'),
    (Currency, '["eur"]', 'expected one of "eur", "usd", got a list'),
    (Level, "true", "expected one of 1, 2, got a boolean"),
    (Literal["only"], '"x"', 'expected "only", got a text that is none'),
    (Literal[0, 1, 2, 3, 4, 5, 6, 7, 8], "9", "expected one of 0, 1, 2, 3, 4, 5, 6, 7, …, got an integer that is none"),
    (list[int], '{"a": 1}', "expected a list, got an object"),
    (tuple[int, str], "[1]", "expected a list of 2, got a list that is none"),
    (tuple[int, str], "1", "expected a list of 2, got an integer"),
    (dict[str, int], "[1]", "expected an object, got a list"),
    (int | None, '"x"', "expected an integer or null, got a text"),
    (UUID | date, '"x"', "expected a UUID or a date such as 2026-01-31, got a text that is none"),
]


@pytest.mark.parametrize(("annotation", "data", "says"), REFUSED, ids=str)
def test_a_value_that_does_not_fit_is_refused_in_words_that_hold_none_of_it(
    annotation: Any, data: str, says: str
) -> None:
    assert refused(one_field(annotation), f'{{"value": {data}}}') == f"data.value: {says}"


def test_a_number_that_nothing_holds_is_refused() -> None:
    assert refused(one_field(Any), '{"value": 1e99999999999999999999}') == "data: holds a number beyond every range"


# ------------------------------------------------------------------ dataclasses
@dataclass(frozen=True, slots=True)
class Item:
    amount: int
    price: Decimal = Decimal(0)


@dataclass
class Order:
    job_id: UUID
    items: list[Item]
    from_: str = "nobody"
    by_name: dict[str, Item] = field(default_factory=dict)
    parent: "Order | None" = None
    pair: tuple[int, Item] | None = None
    spelt: int = field(default=0, metadata={"name": "Sp-elt", "unit": "m"})
    _hidden: int = 0
    made: str = field(init=False, default="here")
    counted: ClassVar[int] = 7
    given: InitVar[int] = 3

    def __post_init__(self, given: int) -> None:
        self.seen = given


def order(**members: object) -> str:
    return json.dumps({"jobId": str(IDENTIFIER), "items": [], **members})


def test_a_whole_order() -> None:
    made = decoded(
        Order,
        order(
            items=[{"amount": 1, "price": "2.50", "unknown": {}}],
            from_="me",
            byName={"a": {"amount": 2}},
            parent=json.loads(order()),
            pair=[1, {"amount": 3}],
            _hidden=9,
            made="there",
            counted=8,
            given=4,
            spelt=5,
            **{"Sp-elt": 6},
        ),
    )
    parent = Order(IDENTIFIER, [])
    assert made == Order(
        IDENTIFIER, [Item(1, Decimal("2.50"))], "me", {"a": Item(2)}, parent, (1, Item(3)), spelt=6, _hidden=9
    )
    assert (made.made, made.counted, made.seen) == ("here", 7, 3)


def test_a_member_may_be_named_as_the_field_or_in_camel_case() -> None:
    @dataclass
    class Names:
        from_: int
        a__b: int
        row_2_count: int
        _id: int
        alreadyCamel: int  # noqa: N815 - the case

    camel = {"from": 1, "aB": 2, "row2Count": 3, "_id": 4, "alreadyCamel": 5}
    snake = {"from_": 1, "a__b": 2, "row_2_count": 3, "_id": 4, "alreadyCamel": 5}
    assert decoded(Names, json.dumps(camel)) == decoded(Names, json.dumps(snake)) == Names(1, 2, 3, 4, 5)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (order(items=[{"amount": 1}, {"amount": "2"}]), "data.items[1].amount: expected an integer, got a text"),
        (order(items=[{}]), "data.items[0].amount: expected an integer, got nothing"),
        (order(items=[5]), "data.items[0]: expected an object, got an integer"),
        (order(byName={"x": {"amount": 1}, "?": {}}), "data.byName[member 1].amount: expected an integer, got nothing"),
        (order(byName={"\ud800": {"amount": 1}}), f"data.byName: {HALF}"),
        (order(pair=[1, {"amount": None}]), "data.pair[1].amount: expected an integer, got null"),
        (order(parent={"items": []}), "data.parent.job_id: expected a UUID, got nothing"),
        (order(parent=[]), "data.parent: expected an object or null, got a list"),
        (order(job_id=str(IDENTIFIER)), "data.job_id: there twice, also as jobId"),
        (order(**{"Sp-elt": "x"}), "data.Sp-elt: expected an integer, got a text"),
        (order(from_=None), "data.from_: expected a text, got null"),
    ],
)  # fmt: skip
def test_the_refusal_says_where(data: str, says: str) -> None:
    assert refused(Order, data) == says


def test_what_the_class_itself_refuses_is_told_by_the_class_of_the_error() -> None:
    @dataclass
    class Positive:
        amount: int

        def __post_init__(self) -> None:
            if self.amount < 0:
                raise ValueError(f"{self.amount} is a secret")

    kind = make_dataclass("Job", [("inner", Positive)])
    assert refused(kind, '{"inner": {"amount": -5}}') == "data.inner: refused by Positive (ValueError)"
    with pytest.raises(Refused) as caught:
        decoded(kind, '{"inner": {"amount": -5}}')
    assert isinstance(caught.value.__cause__, ValueError), "for whoever debugs it"


# ------------------------------------------------------------------ what is no JSON object
@pytest.mark.parametrize(
    ("data", "content_type", "says"),
    [
        (None, None, "data: expected a JSON object, got an event without data"),
        (b"{}", "text/plain", "data: expected a JSON object, got data of another content type"),
        (b"[]", "application/json", "data: expected an object, got a list"),
        (b'"x"', None, "data: expected an object, got a text"),
        (b"null", None, "data: expected an object, got null"),
        (b"1.5", None, "data: expected an object, got a decimal number"),
    ],
)
def test_data_that_is_no_json_object_is_refused(data: bytes | None, content_type: str | None, says: str) -> None:
    with pytest.raises(Refused) as caught:
        decoder_of(Item, "handler h")(event_with(data, content_type))
    assert (caught.value.code, caught.value.detail) == ("invalid-payload", says)


@pytest.mark.parametrize("content_type", [None, "application/json", "application/vnd.job+json; charset=utf-8"])
def test_data_of_a_json_content_type_or_of_none_is_read(content_type: str | None) -> None:
    assert decoder_of(Item, "handler h")(event_with(b' {"amount": 1}\n', content_type)) == Item(1)


@pytest.mark.parametrize(
    "data", [b"{", b"\xff", b"\xef\xbb\xbf{}", b'{"amount": 1, "amount": 2}', b'{"amount": NaN}', b"[" * 100_000]
)
def test_what_is_no_strict_json_is_refused_as_anywhere_else(data: bytes) -> None:
    with pytest.raises(Undecodable) as caught:
        decoded(Item, data)
    assert caught.value.code == "bad-json"


# ------------------------------------------------------------------ bounds
@dataclass
class Node:
    children: "list[Node]" = field(default_factory=list)
    child: "Node | None" = None
    anything: Any = None


def nested(depth: int, member: str, inner: str) -> str:
    return f'{{"{member}": [' * depth + inner + "]}" * depth


def test_nesting_is_bounded_by_the_interpreter_and_refused_beyond() -> None:
    assert decoded(Node, nested(50, "children", "")).children
    assert refused(Node, '{"child": ' * 600 + "{}" + "}" * 600) == "data: nested too deeply"
    for depth in (700, 100_000):  # where the limits are depends on the version
        with suppress(Refused):
            decoded(Node, f'{{"anything": {"[" * depth}{"]" * depth}}}')


def test_a_long_way_to_the_mismatch_is_cut_in_the_middle() -> None:
    said = refused(Node, nested(40, "children", "5"))
    assert len(said) < 300
    assert said.startswith("data.children[0].children[0]")
    assert "…" in said
    assert said.endswith(".children[0]: expected an object, got an integer")


@dataclass
class Leaf:
    kind: Literal["leaf"]
    value: int


@dataclass
class Fork:
    kind: Literal["fork", "branch"]
    left: "Leaf | Fork"
    right: "Leaf | Fork"


def test_dataclasses_of_a_union_are_told_apart_by_their_literals() -> None:
    kind = one_field(Leaf | Fork | None)
    leaf = {"kind": "leaf", "value": 1}
    made = decoded(kind, json.dumps({"value": {"kind": "branch", "left": leaf, "right": leaf}})).value
    assert made == Fork("branch", Leaf("leaf", 1), Leaf("leaf", 1))
    assert decoded(kind, '{"value": null}').value is None
    for inner, says in [
        ({"kind": "fork", "left": leaf, "right": {"kind": "leaf"}}, ".right.value: expected an integer, got nothing"),
        ({"kind": "secret"}, '.kind: expected one of "leaf", "fork", "branch", got a text that is none'),
        ({"kind": ["leaf"]}, '.kind: expected one of "leaf", "fork", "branch", got a list'),
        ({}, '.kind: expected one of "leaf", "fork", "branch", got nothing'),
    ]:
        assert refused(kind, json.dumps({"value": inner})) == f"data.value{says}"


def test_a_union_is_not_decoded_in_time_exponential_in_its_depth() -> None:
    deep: dict[str, object] = {"kind": "leaf", "value": "wrong"}
    leaf = {"kind": "leaf", "value": 1}
    for _ in range(60):
        deep = {"kind": "fork", "left": leaf, "right": deep}
    began = time.process_time()
    assert "expected an integer, got a text" in refused(one_field(Leaf | Fork), json.dumps({"value": deep}))
    assert time.process_time() - began < 1


def test_a_large_payload() -> None:
    kind = one_field(list[Item])
    data = json.dumps({"value": [{"amount": number, "price": 0.5} for number in range(20_000)]})
    assert decoded(kind, data).value[-1] == Item(19_999, Decimal("0.5"))
    broken = data.replace('"amount": 19999', '"amount": "x"')
    assert refused(kind, broken) == "data.value[19999].amount: expected an integer, got a text"


# ------------------------------------------------------------------ what cannot be registered
class Plain: ...


class Odd(Enum):
    PAIR = (1, 2)


@dataclass
class TwoNames:
    job_id: int
    jobId: int  # noqa: N815 - the case


@dataclass
class Demands:
    given: InitVar[int]

    def __post_init__(self, given: int) -> None: ...


@dataclass(init=False)
class TakesAnything:
    a: int

    def __init__(self, *args: Any, **members: Any) -> None:
        self.a = members["a"]


@dataclass
class Named:
    a: int = field(metadata={"name": 5})


@dataclass
class AliasOfOne:
    kind: Literal["leaf"]


@dataclass
class Untold:
    value: int


#: As Python 3.12 makes of `type Endless = list[Endless]`.
Endless = type("TypeAliasType", (), {"__value__": property(list.__class_getitem__)})()


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (one_field(Plain), r"Job\.value: Plain cannot be made from JSON"),
        (one_field(set[int]), r"Job\.value: set\[int\] cannot be made from JSON"),
        (one_field(list[complex]), r"Job\.value: complex cannot be made"),
        (one_field(dict[int, str]), r"Job\.value: dict\[int, str\] cannot be made"),
        (one_field(Callable[[], None]), r"Job\.value: .* cannot be made"),
        (one_field(Odd), r"Job\.value: Odd cannot be made"),
        (one_field(Literal[b"x"]), r"Job\.value: .* cannot be made"),
        (one_field(typing.TypeVar("T")), r"Job\.value: ~T cannot be made"),
        (one_field([]), r"Job\.value: \[\] cannot be made"),
        (one_field("Missing"), r"the annotation of Job\.value cannot be read \(NameError\)"),
        (one_field("list[int"), r"the annotation of Job\.value cannot be read \(SyntaxError\)"),
        (one_field(list[int] | tuple[str]), r"Job\.value: two types of its union take a list"),
        (one_field(Item | Leaf), r"Job\.value: two types of its union take an object"),
        (one_field(Leaf | AliasOfOne), r"Job\.value: two types of its union take an object"),
        (one_field(Leaf | dict[str, int]), r"Job\.value: two types of its union take an object"),
        (one_field(Leaf | Untold), r"Job\.value: two types of its union take an object"),
        (one_field(Endless), "holds an alias that stands for itself"),
        (TwoNames, "TwoNames.job_id and TwoNames.jobId would both be read from the member 'jobId'"),
        (Demands, "Demands.__init__ demands given, which is no field"),
        (Named, r"Named\.a: metadata\['name'\]"),
    ],
)
def test_a_class_that_cannot_be_made_from_json_is_refused_with_its_field(kind: type, says: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^handler h: .*{says}"):
        decoder_of(kind, "handler h")


def test_an_init_of_ones_own_may_take_what_it_likes() -> None:
    assert decoded(TakesAnything, '{"a": 1}').a == 1


def test_what_is_a_payload() -> None:
    assert is_payload_class(Item)
    for other in (Item(1), Plain, int, dict, list[Item], "Item", None):
        assert not is_payload_class(other)


def test_fields_of_a_class_elsewhere_are_read_with_the_names_of_its_module() -> None:
    kind: Any = dataclass(type("Job", (Order,), {"__annotations__": {"more": "Currency"}, "more": Currency.EUR}))
    assert decoded(kind, order(more="usd")).more is Currency.USD
    assert [each.name for each in dataclasses.fields(kind)][-1] == "more"


# ------------------------------------------------------------------ whatever comes
ATOMS: list[object] = [None, True, 0, -1, 2**70, 1.5, 1e300, "", "x", "1", "é", "eur", "leaf", [], {}]
ATOMS += ["2026-01-02T03:04:05Z", "2026-01-31", str(IDENTIFIER), "AP8="]
KEYS = [
    "job_id",
    "jobId",
    "items",
    "amount",
    "price",
    "byName",
    "parent",
    "pair",
    "kind",
    "value",
    "left",
    "right",
    "?",
]


def anything(draw: random.Random, depth: int) -> object:
    match draw.randint(0, 3) if depth else 0:
        case 1:
            return [anything(draw, depth - 1) for _ in range(draw.randint(0, 3))]
        case 2 | 3:
            return {draw.choice(KEYS): anything(draw, depth - 1) for _ in range(draw.randint(0, 5))}
        case _:
            return draw.choice(ATOMS)


@dataclass
class Everything:
    value: Leaf | Fork | list[Item] | int | Decimal | datetime | Currency | str | None = None
    items: list[Order] | None = None
    pair: tuple[Any, ...] = ()


@pytest.mark.parametrize("seed", range(10))
def test_whatever_comes_is_made_or_refused_and_nothing_else(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 - test data
    made = 0
    decode = [decoder_of(kind, "h") for kind in (Everything, Order, Node)]
    for _ in range(500):
        data = json.dumps({draw.choice(KEYS): anything(draw, 4) for _ in range(3)}).encode()
        for each in decode:
            try:
                each(event_with(data))
                made += 1
            except Refused as refusal:
                assert refusal.code == "invalid-payload"  # noqa: PT017 - either is right
    assert made


def rewritten(value: Any) -> Any:
    """A value as JSON that is read as the same again."""
    if dataclasses.is_dataclass(value):
        return {each.name: rewritten(getattr(value, each.name)) for each in dataclasses.fields(value) if each.init}
    if isinstance(value, list | tuple):
        return [rewritten(each) for each in value]
    if isinstance(value, dict):
        return {key: rewritten(each) for key, each in value.items()}
    return str(value) if isinstance(value, Decimal | UUID) else value


@pytest.mark.parametrize("seed", range(10))
def test_what_was_made_is_made_again_of_what_it_says(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 - test data

    def item() -> Item:
        return Item(
            draw.randint(-(2**80), 2**80), Decimal(draw.randint(-(10**30), 10**30)).scaleb(-draw.randint(0, 20))
        )

    kind: Any = make_dataclass(
        "Book", [("items", list[Item]), ("by_name", dict[str, Item]), ("pair", tuple[Item, Item])]
    )
    for _ in range(50):
        book = kind([item(), item()], {draw.choice("abc"): item() for _ in range(2)}, (item(), item()))
        assert decoded(kind, json.dumps(rewritten(book))) == book
