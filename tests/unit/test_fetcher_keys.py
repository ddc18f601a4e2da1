"""Keys are read strictly, derived as the provider derives them, and shown nowhere."""

import copy
import pickle
import traceback
from pathlib import Path
from typing import Any

import pytest

from inbox.errors import ConfigurationError
from inbox.fetcher import DerivedKeys, FetcherKeys, FetcherVerifier, derive_keys
from tests.unit.fetcher_cases import KEYS, VECTORS

ONE, TWO = KEYS["k1"], KEYS["k2"]
HINT = "this is base64, as APP_ENC_KEY is: derive from it (inbox fetcher derive-key)"
MASTER = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="


# ---------------------------------------------------------------- external keys
@pytest.mark.parametrize(
    "given",
    [ONE, [ONE], [ONE.upper()], [f" {ONE}\n"], [bytes.fromhex(ONE)], (ONE,), f"{ONE},{ONE}", [ONE, bytes.fromhex(ONE)]],
)
def test_a_key_is_taken_however_it_is_written(given: Any) -> None:
    assert FetcherKeys(given).octets == (bytes.fromhex(ONE),)


def test_a_list_keeps_its_order() -> None:
    keys = FetcherKeys(f"{TWO}, {ONE}")
    assert keys.octets == (bytes.fromhex(TWO), bytes.fromhex(ONE))
    assert len(keys) == 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "no external key: give the 64 hex digits that the provider's key tool prints"),
        ("", "external key 1 must be 64 hex digits"),
        ([ONE, ONE[:-1]], "external key 2 must be 64 hex digits"),
        ([ONE[:-1] + "g"], "external key 1 must be 64 hex digits"),
        ([" ".join([ONE[:32], ONE[32:]])], "external key 1 must be 64 hex digits"),
        ([b"short"], "external key 1 must have 32 octets"),
        ([None], "external key 1 must be 64 hex digits"),
        ([7], "external key 1 must be 64 hex digits"),
        (
            [MASTER],
            f"external key 1 must be 64 hex digits; {HINT}",
        ),
        ([bytes([number]) * 32 for number in range(9)], "9 external keys, at most 8: leave the oldest out"),
    ],
)
def test_what_is_no_key_is_said_without_it(given: Any, said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        FetcherKeys(given)
    assert str(refused.value) == said


def test_keys_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FETCHER_EXTERNAL_HMAC_KEY", f"{ONE},{TWO}")
    assert FetcherKeys.from_env().octets == (bytes.fromhex(ONE), bytes.fromhex(TWO))
    monkeypatch.setenv("OTHER", TWO)
    assert FetcherKeys.from_env("OTHER").octets == (bytes.fromhex(TWO),)
    monkeypatch.setenv("OTHER", "hunter2")
    with pytest.raises(ConfigurationError, match=r"^OTHER: external key 1 must be 64 hex digits$"):
        FetcherKeys.from_env("OTHER")
    monkeypatch.delenv("OTHER")
    with pytest.raises(ConfigurationError, match=r"^set OTHER in the environment$"):
        FetcherKeys.from_env("OTHER")


def test_keys_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# in use\r\n{TWO}\r\n\n  # until June\n{ONE}\n")
    assert FetcherKeys.from_file(file).octets == (bytes.fromhex(TWO), bytes.fromhex(ONE))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no external key: give the 64 hex digits that the provider's key tool prints"),
        (b"hunter2", "external key 1 must be 64 hex digits"),
        (b"\xff\xfe", "not text in UTF-8"),
        (b"0" * (1 << 17), "external key 1 must be 64 hex digits"),
    ],
)
def test_a_file_that_holds_something_else_is_said_without_it(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "keys"
    file.write_bytes(content)
    with pytest.raises(ConfigurationError) as refused:
        FetcherKeys.from_file(str(file))
    assert str(refused.value) == f"{file}: {said}"


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"keys: No such file or directory$"):
        FetcherKeys.from_file(tmp_path / "keys")


# ---------------------------------------------------------------- nothing is shown
def test_keys_are_shown_nowhere() -> None:
    keys, derived = FetcherKeys([ONE, TWO]), derive_keys(MASTER)
    verifier = FetcherVerifier(keys)
    assert repr(keys) == str(keys) == "<FetcherKeys: 2>"
    assert repr(derived) == f"{derived}" == "<DerivedKeys>"
    for shown in (f"{keys!r:>80}", f"{[keys, derived, verifier]}", repr(vars(verifier).keys())):
        for secret in (ONE, TWO, repr(bytes.fromhex(ONE))[2:-1]):
            assert secret not in shown


@pytest.mark.parametrize("leave", [pickle.dumps, copy.copy, copy.deepcopy])
def test_keys_leave_a_process_by_nobodys_accident(leave: Any) -> None:
    with pytest.raises(TypeError, match=r"^keys are not pickled"):
        leave(FetcherKeys(ONE))


@pytest.mark.parametrize("secret", ["hunter2", ONE + "0", MASTER[:-1] + "!", " " + MASTER])
def test_no_traceback_holds_what_was_meant_to_be_a_key(secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FETCHER_EXTERNAL_HMAC_KEY", secret)
    for attempt in (lambda: FetcherKeys(secret), FetcherKeys.from_env, lambda: derive_keys(secret)):
        with pytest.raises(ConfigurationError) as refused:
            attempt()
        assert secret.strip() not in "".join(traceback.format_exception(refused.value))


# ---------------------------------------------------------------- derivation
@pytest.mark.parametrize("vector", VECTORS["keys"], ids=lambda vector: vector["id"])
def test_keys_are_derived_as_the_provider_derives_them(vector: dict[str, Any]) -> None:
    derived = derive_keys(vector["app_enc_key"])
    assert derived.external.hex() == vector["derived"]["external_hmac_hex"]
    assert derived.storage.hex() == vector["derived"]["storage_encryption_hex"]
    assert derived.warning is None


@pytest.mark.parametrize("vector", VECTORS["app_enc_key_forms"], ids=lambda vector: vector["id"])
def test_a_master_key_is_taken_as_the_provider_takes_it(vector: dict[str, Any]) -> None:
    if not vector["provider_accepts"]:
        with pytest.raises(ConfigurationError, match=r"^the master key "):
            derive_keys(vector["app_enc_key"])
        return
    derived: DerivedKeys = derive_keys(vector["app_enc_key"])
    assert derived.external.hex() == vector["external_hmac_hex"]
    assert (derived.warning is not None) == (vector["id"] == "hex-by-mistake")


@pytest.mark.parametrize(
    ("master", "said"),
    [
        ("", "is empty"),
        ("\r\n", "is empty"),
        (f" {MASTER}", "is not standard base64: white space stands before or behind it, which the provider refuses"),
        (f"{MASTER}\t", "is not standard base64: white space stands before or behind it, which the provider refuses"),
        (
            MASTER.replace("A", "_"),
            "is not standard base64: it has the URL-safe alphabet; + and / are needed for - and _",
        ),
        (MASTER[:-1], "is not standard base64: its padding is missing"),
        (MASTER + "=", "is not standard base64: it holds other characters, or its padding is wrong"),
        (f'"{MASTER}"', "is not standard base64: it holds other characters, or its padding is wrong"),
        ("é" * 44, "is not standard base64: it holds other characters, or its padding is wrong"),
        ("AAAA", "has 3 octets, at least 32 are needed"),
    ],
)
def test_what_is_no_master_key_is_said(master: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        derive_keys(master)
    assert str(refused.value) == f"the master key {said}"


def test_line_ends_anywhere_are_skipped_as_the_provider_skips_them() -> None:
    broken = "\r\n".join([MASTER[:10], MASTER[10:43], MASTER[43:], ""])
    assert derive_keys(broken).external.hex() == ONE
