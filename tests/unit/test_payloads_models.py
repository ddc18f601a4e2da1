"""Models of pydantic made of an event's data, and what a refusal tells of theirs."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import pydantic.dataclasses
import pytest
from pydantic import AfterValidator, AliasChoices, AliasPath, BaseModel, ConfigDict, Field, RootModel

from inbox.errors import ConfigurationError, Refused, Undecodable
from inbox.runtime.payloads import decoder_of, is_payload_class
from tests.unit.test_payloads import IDENTIFIER, decoded, event_with, refused


class Card(BaseModel):
    kind: Literal["card"]
    number: int


class Transfer(BaseModel):
    kind: Literal["transfer"]
    account: str


class Item(BaseModel):
    amount: int


class Order(BaseModel):
    model_config = ConfigDict(extra="forbid")

    job_id: UUID = Field(alias="jobId")
    items: list[Item] = []
    by_name: dict[str, Item] = {}
    paid: Annotated[Card | Transfer, Field(discriminator="kind")] | None = None
    either: int | Item = 0
    deep: int = Field(0, validation_alias=AliasChoices("depth", AliasPath("at", "depth", 0)))
    parent: "Order | None" = None


@pydantic.dataclasses.dataclass
class Point:
    x: int
    inner: "Point | None" = None


def order(**members: object) -> str:
    return json.dumps({"jobId": str(IDENTIFIER), **members})


def test_a_model_is_made_of_the_data() -> None:
    made = decoded(Order, order(items=[{"amount": 2**70}], paid={"kind": "card", "number": 5}, depth=4))
    assert (made.job_id, made.items, made.paid, made.deep) == (
        IDENTIFIER, [Item(amount=2**70)], Card(kind="card", number=5), 4,
    )  # fmt: skip
    assert made.items[0].amount == 2**70


def test_a_dataclass_of_pydantics_is_one_of_its_models() -> None:
    assert is_payload_class(Point)
    assert decoded(Point, '{"x": "1", "inner": {"x": 2}}') == Point(1, Point(2))
    assert refused(Point, '{"x": 1, "inner": {"x": "y"}}') == "data.inner.x: refused by Point (int_parsing)"


def test_a_strict_model_takes_what_json_has_for_moments_and_ids() -> None:
    class Strict(BaseModel):
        model_config = ConfigDict(strict=True)

        at: datetime
        id: UUID
        n: int

    made = decoded(Strict, json.dumps({"at": "2026-01-02T03:04:05Z", "id": str(IDENTIFIER), "n": 1}))
    assert made == Strict(at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), id=IDENTIFIER, n=1)
    told = refused(Strict, json.dumps({"at": "2026-01-02T03:04:05Z", "id": str(IDENTIFIER), "n": "1"}))
    assert told == "data.n: refused by Strict (int_type)"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ("{}", "data.jobId: refused by Order (missing)"),
        (order(items=[{"amount": 1}, {"amount": "secret"}]), "data.items[1].amount: refused by Order (int_parsing)"),
        (order(byName={}), "data.*: refused by Order (extra_forbidden)"),
        (order(by_name={"secret": {"amount": 1.5}}), "data.by_name.*.amount: refused by Order (int_from_float)"),
        (order(by_name={"secret": {}}), "data.by_name.*.amount: refused by Order (missing)"),
        (order(paid={"kind": "secret"}), "data.paid: refused by Order (union_tag_invalid)"),
        (order(paid={"kind": "card", "number": []}), "data.paid.card.number: refused by Order (int_type)"),
        (order(either="secret"), "data.either.int: refused by Order (int_parsing)"),
        (order(depth="secret"), "data.depth: refused by Order (int_parsing)"),
        (order(parent={}), "data.parent.jobId: refused by Order (missing)"),
        ("[]", "data: expected an object, got a list"),
    ],
)
def test_the_refusal_names_place_and_kind_and_nothing_that_came(data: str, says: str) -> None:
    assert refused(Order, data) == says


def test_nothing_that_came_is_chained_to_the_refusal() -> None:
    with pytest.raises(Refused) as caught:
        decoded(Order, order(items="secret"))
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def explode(value: int) -> int:
    raise LookupError(f"{value} is a secret")


class Explosive(BaseModel):
    value: Annotated[int, AfterValidator(explode)]


def test_a_validator_that_breaks_refuses_like_one_that_says_no() -> None:
    assert refused(Explosive, '{"value": 5}') == "data: refused by Explosive (LookupError)"


def test_a_map_is_a_model_too() -> None:
    class Prices(RootModel[dict[str, int]]): ...

    assert decoded(Prices, '{"a": 1}').root == {"a": 1}
    assert refused(Prices, '{"secret": "x"}') == "data.*: refused by Prices (int_parsing)"


# ------------------------------------------------------------------ what pydantic alone would let through
@pytest.mark.parametrize("data", ['{"amount": 1, "amount": 2}', '{"amount": NaN}', "{", b'{"amount": 1, "x": "\xff"}'])
def test_json_is_read_strictly_whatever_the_content_type(data: str | bytes) -> None:
    octets = data if isinstance(data, bytes) else data.encode()
    for content_type in (None, "application/json"):
        with pytest.raises(Undecodable):
            decoder_of(Item, "h")(event_with(octets, content_type))


class Priced(BaseModel):
    price: Decimal
    weight: float = 0.0


class Weighed(BaseModel):
    weight: float


@pytest.mark.parametrize("number", ["12.30", "0.1", "1e2", "5", '"1.23456789012345678901"', "1234567890123.25", "-0.0"])
def test_a_decimal_is_what_the_producer_wrote(number: str) -> None:
    assert decoded(Priced, f'{{"price": {number}}}').price == Decimal(number.strip('"'))


@pytest.mark.parametrize("number", ["1.23456789012345678901", "12345678901234567.25", "1e400", "1e-400"])
def test_a_decimal_that_would_lose_digits_is_refused(number: str) -> None:
    told = refused(Priced, f'{{"price": {number}}}')
    assert told == "data: holds a number with more digits than pydantic keeps for a Decimal: send it as a text"
    assert decoded(Weighed, f'{{"weight": {number}}}').weight == float(number), "floats are rounded, as everywhere"


def test_a_number_beyond_every_range_is_refused() -> None:
    assert refused(Priced, '{"price": 1e99999999999999999999}') == "data: holds a number beyond every range"


# ------------------------------------------------------------------ registration
class Late(BaseModel):
    value: "Missing"  # type: ignore[name-defined]  # noqa: F821 - the case


class Deferred(BaseModel):
    model_config = ConfigDict(defer_build=True)

    value: dict[str, Item]


def test_a_model_that_cannot_be_built_is_refused_when_it_is_registered() -> None:
    with pytest.raises(ConfigurationError, match=r"^handler h: the model Late cannot be built \(Pydantic"):
        decoder_of(Late, "handler h")


def test_the_base_of_all_models_is_no_payload() -> None:
    with pytest.raises(ConfigurationError, match="BaseModel itself"):
        decoder_of(BaseModel, "handler h")


def test_a_model_whose_building_is_put_off_is_built_when_it_is_registered() -> None:
    assert refused(Deferred, '{"value": {"secret": {"amount": "x"}}}') == (
        "data.value.*.amount: refused by Deferred (int_parsing)"
    )


def test_a_model_inside_a_dataclass_is_refused_with_what_to_do() -> None:
    from tests.unit.test_payloads import one_field  # noqa: PLC0415 - beside its one use

    with pytest.raises(ConfigurationError, match=r"Job\.value: Item cannot be made .* be a pydantic model"):
        decoder_of(one_field(Item), "handler h")


# ------------------------------------------------------------------ an extra
WITHOUT_PYDANTIC = """
import sys
sys.modules["pydantic"] = sys.modules["pydantic_core"] = None  # whoever imports them gets ModuleNotFoundError
import inbox
from dataclasses import dataclass
from inbox.runtime.payloads import decoder_of
from inbox.runtime.registry import Registry
from sqlalchemy.ext.asyncio import AsyncSession

@dataclass
class Job:
    job_id: int

async def credit(job: Job, event: inbox.Event, session: AsyncSession) -> None: ...

print(Registry().add("t", credit).wants.value)
assert "inbox.runtime.models" not in sys.modules
"""


def test_nothing_imports_pydantic_where_it_is_not_asked_for() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_PYDANTIC], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "payload, event\n", "")


def test_importing_the_package_does_not_load_pydantic_where_it_is_installed() -> None:
    program = "import sys, inbox, inbox.runtime.payloads; print('pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_every_field_of_every_kind_of_model_is_told_by_name() -> None:
    class Fields(BaseModel):
        a: Any = None
        point: Point | None = None

    assert refused(Fields, '{"point": {"x": 1, "inner": {"x": []}}}') == (
        "data.point.inner.x: refused by Fields (int_type)"
    )
