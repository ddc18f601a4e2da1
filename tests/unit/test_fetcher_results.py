"""Stored results: what is refused, by which word, and that nothing of a result is seen before it is authentic."""

import tracemalloc
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from inbox.errors import ConfigurationError, Refused, Retry
from inbox.fetcher.keys import FetcherKeys
from inbox.fetcher.models import JobResult, ResultIntegrity
from inbox.fetcher.objects import DirectoryObjects
from inbox.fetcher.result_errors import (
    ResultKeyMissing,
    ResultMalformed,
    ResultNotAuthentic,
    ResultNotDecryptable,
    ResultNotFound,
    ResultPathRefused,
    ResultTooLarge,
    ResultUnreachable,
)
from inbox.fetcher.results import ResultReader, StorageKeys
from tests.unit.fetcher_results import (
    ENCRYPTED,
    EXTERNAL,
    KEYS,
    PATH,
    RESULTS,
    STORAGE,
    job,
    mac,
    reader_of,
    sealed,
    stored,
)

OTHER = bytes(32)
GOOD = [each for each in RESULTS if "fails_at" not in each]
BAD = [each for each in RESULTS if "fails_at" in each]
PLAIN = b'{"db":{"t":[{"id":1},{"id":2}]}}'


def of_the_provider(each: dict[str, Any], **options: Any) -> tuple[ResultReader, JobResult]:
    keys = KEYS[each["key"]]
    reader, _ = reader_of(each["object"].encode(), keys=keys["external"], storage=keys["storage"], **options)
    said = JobResult(PATH, each.get("size", 229), each.get("rows", 2), hmac=each["hmac"], protection=ENCRYPTED)
    return reader, said


# ------------------------------------------------------------------ what the provider wrote
@pytest.mark.parametrize("piece", [1, 3, 5, 64, 1 << 16])
@pytest.mark.parametrize("each", GOOD, ids=lambda each: each["id"])
async def test_what_the_provider_stored_is_read_however_it_is_cut(each: dict[str, Any], piece: int) -> None:
    reader, said = of_the_provider(each, piece=piece)
    result = await reader.read(said)
    assert bytes(result.plaintext) == each["plaintext"].encode()
    assert result.row_count == len(list(result.rows())) == each["rows"]


@pytest.mark.parametrize("each", BAD, ids=lambda each: each["id"])
async def test_what_is_wrong_about_it_is_refused_at_its_stage(each: dict[str, Any]) -> None:
    reader, said = of_the_provider(each)
    expected = ResultNotAuthentic if each["fails_at"] == "hmac" else ResultNotDecryptable
    with pytest.raises(expected):
        await reader.read(said)


async def test_tables_have_dots_in_their_names_and_may_be_empty() -> None:
    reader, said = of_the_provider(GOOD[0])
    result = await reader.read(said)
    assert result.tables == {("onboarding", "accounting.invoices"): 0, ("onboarding", "organization"): 2}
    assert [row.values["id"] for row in result.rows("onboarding", "organization")] == [1, 2]
    assert [row.values["id"] for row in result.rows(table="organization")] == [1, 2]
    assert list(result.rows("onboarding", "accounting.invoices")) == []
    for nowhere in (("onboarding", "invoices"), ("onboarding.accounting", "invoices"), ("", None)):
        with pytest.raises(LookupError, match="no such table"):
            result.rows(*nowhere)


async def test_numbers_are_exact() -> None:
    reader, said = of_the_provider(next(each for each in GOOD if each["id"] == "numbers"))
    (row,) = (await reader.read(said)).rows()
    assert (row.values["n"], str(row.values["d"])) == (12345678901234567890, "0.10")
    assert row.values["e"] == Decimal("1e21")


# ------------------------------------------------------------------ size
async def test_what_says_that_it_is_too_large_is_not_fetched() -> None:
    reader, objects = reader_of(sealed(PLAIN), max_bytes=len(PLAIN) - 1)
    with pytest.raises(ResultTooLarge, match="limit"):
        await reader.read(stored(PLAIN, 2))
    assert objects.asked == []
    reader, objects = reader_of(sealed(PLAIN), max_bytes=len(PLAIN))
    assert (await reader.read(stored(PLAIN, 2))).row_count == 2


@pytest.mark.parametrize("protection", [ENCRYPTED, replace(ENCRYPTED, encrypted=False)], ids=["sealed", "plain"])
async def test_what_is_larger_than_it_says_is_read_no_further(protection: Any) -> None:
    reader, objects = reader_of(b"QUJD" * 1_000_000, piece=1000)
    with pytest.raises(ResultTooLarge, match="more octets"):
        await reader.read(stored(PLAIN, protection=protection))
    assert objects.handed_out == 1000
    assert objects.open == 0, "it was closed"


@pytest.mark.parametrize("cut", [1, 4, 20, 40, 83])
async def test_what_was_cut_is_refused(cut: int) -> None:
    reader, _ = reader_of(sealed(PLAIN)[:-cut])
    with pytest.raises(ResultNotDecryptable):
        await reader.read(stored(PLAIN, 2))


async def test_padding_in_the_middle_makes_up_for_nothing() -> None:
    content = sealed(PLAIN)
    for place in (16, 24, len(content) - 8):
        reader, _ = reader_of(content[: place - 4] + b"QQ==" + content[place:], piece=place)
        with pytest.raises(ResultNotDecryptable):
            await reader.read(stored(PLAIN, 2))


async def test_every_changed_character_is_found() -> None:
    content = sealed(PLAIN)
    for place, character in enumerate(content.rstrip(b"=")[:-1]):
        changed = (
            content[:place] + bytes([character ^ 1 if chr(character ^ 1).isalnum() else 65]) + content[place + 1 :]
        )
        if changed != content:
            with pytest.raises(ResultNotDecryptable):
                await reader_of(changed)[0].read(stored(PLAIN, 2))


async def test_there_is_one_buffer() -> None:
    plaintext = b'{"db":{"t":[' + b",".join([b'{"v":"%s"}' % (b"x" * 1000)] * 6000) + b"]}}"
    reader, _ = reader_of(sealed(plaintext))
    said = stored(plaintext, 6000)
    tracemalloc.start()
    try:
        result = await reader.read(said)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert result.row_count == 6000
    assert peak < len(plaintext) + 1_500_000, "its plaintext, and some pieces"


# ------------------------------------------------------------------ keys and MACs
async def test_keys_rotate() -> None:
    content = sealed(PLAIN)
    reader, objects = reader_of(content, keys=(OTHER, EXTERNAL), storage=(OTHER, EXTERNAL, STORAGE))
    assert (await reader.read(stored(PLAIN, 2))).row_count == 2
    assert len(objects.asked) == 3, "which storage key it is, nothing tells"
    reader, _ = reader_of(content, keys=(OTHER,))
    with pytest.raises(ResultNotAuthentic):
        await reader.read(stored(PLAIN, 2))
    reader, objects = reader_of(content, storage=(OTHER, EXTERNAL))
    with pytest.raises(ResultNotDecryptable):
        await reader.read(stored(PLAIN, 2))


async def test_without_a_storage_key_only_what_is_plain_is_read() -> None:
    reader, objects = reader_of(sealed(PLAIN), storage=None)
    with pytest.raises(ResultKeyMissing):
        await reader.read(stored(PLAIN, 2))
    assert objects.asked == []
    reader, _ = reader_of(PLAIN, storage=None)
    for protection in (None, replace(ENCRYPTED, encrypted=False)):
        assert (await reader.read(stored(PLAIN, 2, protection=protection))).row_count == 2
    reader, _ = reader_of(PLAIN[:-1], storage=None)
    with pytest.raises(ResultNotAuthentic, match="fewer octets"):
        await reader.read(stored(PLAIN, 2, protection=None))


async def test_what_does_not_say_whether_it_is_encrypted_is_if_there_is_a_key() -> None:
    reader, _ = reader_of(sealed(PLAIN))
    assert (await reader.read(stored(PLAIN, 2, protection=None))).row_count == 2


async def test_what_is_plain_by_its_event_is_authentic_all_the_same() -> None:
    reader, _ = reader_of(PLAIN.replace(b"1", b"3"))
    with pytest.raises(ResultNotAuthentic):
        await reader.read(stored(PLAIN, 2, protection=replace(ENCRYPTED, encrypted=False)))


@pytest.mark.parametrize(
    ("hmac", "integrity", "is_good"),
    [
        (mac(PLAIN), None, True),
        (mac(PLAIN), ResultIntegrity("HMAC-SHA256", mac(PLAIN)), True),
        (None, ResultIntegrity("HMAC-SHA256", mac(PLAIN)), True),
        (None, ResultIntegrity("SHA256", mac(PLAIN)), False),
        (mac(PLAIN), ResultIntegrity("HMAC-SHA256", mac(b"")), False),
        (mac(PLAIN).upper(), None, False),
        (f"sha256={mac(PLAIN)}", None, False),
        ("é\ud800", None, False),
        ("", None, False),
        (None, None, False),
    ],
)
async def test_the_mac_stands_in_one_place_or_in_two(hmac: Any, integrity: Any, is_good: bool) -> None:
    reader, _ = reader_of(sealed(PLAIN))
    said = stored(PLAIN, 2, hmac=hmac, integrity=integrity)
    if is_good:
        assert (await reader.read(said)).row_count == 2
    else:
        with pytest.raises(ResultNotAuthentic):
            await reader.read(said)


@pytest.mark.parametrize("rows", [0, 1, 3])
async def test_the_number_of_rows_is_the_events(rows: int) -> None:
    with pytest.raises(ResultMalformed, match="another number of rows"):
        await reader_of(sealed(PLAIN))[0].read(stored(PLAIN, rows))


def test_nothing_shows_a_key() -> None:
    keys = StorageKeys("61" * 32)
    reader, _ = reader_of(b"", storage=(b"a" * 32,))
    for text in (repr(keys), repr(reader), str(keys)):
        assert "aaaa" not in text
        assert "6161" not in text
    with pytest.raises(ConfigurationError, match=r"^storage key 1 must be 64 hex digits$"):
        StorageKeys("61")
    with pytest.raises(ConfigurationError, match=r"^no storage key: "):
        StorageKeys([])


def test_storage_keys_come_from_a_variable_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FETCHER_STORAGE_KEY", "61" * 32)
    assert StorageKeys.from_env().octets == (b"a" * 32,)


# ------------------------------------------------------------------ where it is
@pytest.mark.parametrize(
    "path",
    [
        *("", "/etc/passwd", "../secret", "a/../../secret", "external-data/./x", "a//b", "a/", "a\\..\\b", "a\x00b"),
        *("a\nb", "é" * 600, "\ud800", ".."),
    ],
)
async def test_a_path_that_leads_elsewhere_is_refused_before_anything_is_read(path: str) -> None:
    reader, objects = reader_of(sealed(PLAIN), prefix="")
    with pytest.raises(ResultPathRefused):
        await reader.read(stored(PLAIN, 2, path=path))
    assert objects.asked == []


async def test_the_prefix_is_put_before_the_path_and_nothing_between() -> None:
    reader, objects = reader_of(sealed(PLAIN), prefix="eu/prod-")
    assert (await reader.read(stored(PLAIN, 2))).row_count == 2
    assert objects.asked == [f"eu/prod-{PATH}"]
    with pytest.raises(ResultPathRefused):
        await reader_of(None, prefix="eu/.")[0].read(stored(PLAIN, path="./x"))


@pytest.mark.parametrize("prefix", ["/eu", "eu//", "../", "a/./", "é" * 600])
def test_a_prefix_that_begins_no_key_is_a_wrong_setting(prefix: str) -> None:
    with pytest.raises(ConfigurationError, match="prefix must be the beginning of a key"):
        reader_of(b"", prefix=prefix)


async def test_what_is_not_there_is_asked_for_again() -> None:
    with pytest.raises(ResultNotFound):
        await reader_of(None)[0].prepare(job(stored(PLAIN)))


def test_two_of_the_errors_are_tries_and_the_others_refusals_with_a_word_each() -> None:
    assert all(issubclass(each, Retry) for each in (ResultNotFound, ResultUnreachable))
    refusals = (
        *(ResultPathRefused, ResultTooLarge, ResultKeyMissing, ResultNotDecryptable),
        *(ResultNotAuthentic, ResultMalformed),
    )
    assert all(issubclass(each, Refused) for each in refusals)
    assert len({each.code for each in refusals}) == len(refusals)


# ------------------------------------------------------------------ folders
async def test_a_folder_holds_what_is_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    (folder / PATH).parent.mkdir(parents=True)
    (folder / PATH).write_bytes(sealed(PLAIN))
    (tmp_path / "secret.json").write_bytes(sealed(PLAIN))
    (folder / "out.json").symlink_to(tmp_path / "secret.json")
    (folder / "in.json").symlink_to(folder / PATH)
    (folder / "up").symlink_to(tmp_path)
    objects = DirectoryObjects(folder)
    reader = ResultReader(objects, keys=FetcherKeys((EXTERNAL,)), storage_keys=StorageKeys((STORAGE,)))
    for path in (PATH, "in.json"):
        assert (await reader.read(stored(PLAIN, 2, path=path))).row_count == 2
    for path in ("nothing.json", "external-data", "out.json", "up/secret.json", f"{PATH}/x"):
        with pytest.raises(ResultNotFound):
            await reader.read(stored(PLAIN, 2, path=path))
    (folder / "circle.json").symlink_to(folder / "circle.json")
    for path in ("circle.json", "x" * 300):
        with pytest.raises(ResultUnreachable):
            await reader.read(stored(PLAIN, 2, path=path))


def test_a_folder_that_is_none_is_a_wrong_setting(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is no folder"):
        DirectoryObjects(tmp_path / "nothing")
