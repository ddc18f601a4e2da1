"""`inbox orbit serve`: what it does not start with, said in one line that names the fix."""

import sys
from pathlib import Path

import pytest

from inbox.cli import orbit_serve
from inbox.cli.main import app
from tests.services.certificates import Certificates, make_certificates


@pytest.fixture
def made(tmp_path: Path) -> Certificates:
    return make_certificates(tmp_path)


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logging is pytest's here."""
    monkeypatch.setattr(orbit_serve, "configure_logging", lambda *_: None)


class Refused:
    """Runs the command, which must not start, and has what it told."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *options: str) -> str:
        with pytest.raises(SystemExit) as ended:
            app(["orbit", "serve", "--port", "0", *options])
        told = self._capsys.readouterr()
        assert (ended.value.code, told.out) == (2, "")
        return told.err


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Refused:
    return Refused(capsys)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--file", "/nowhere/at/all/orbit.db"), "the folder is not there"),
        (("--queue", "A b"), "queue: small letters"),
        (("--host", "0.0.0.0"), "--plain-text"),  # noqa: S104 - it is refused
        (("--host", "example.org"), "--plain-text"),
        (("--host", "256.0.0.1", "--plain-text"), "cannot listen on 256.0.0.1"),
        (("--first-delay", "9", "--longest-delay", "1"), "terms.longest_delay"),
    ],
)
def test_what_it_does_not_start_with_is_one_line(refused: Refused, options: tuple[str, ...], says: str) -> None:
    told = refused(*options)
    assert says in told
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("option", "wrong"),
    [
        *[("--lease", "0"), ("--lease", "86401"), ("--budget", "0"), ("--window", "0"), ("--window", "10001")],
        *[("--port", "65536"), ("--first-delay", "0"), ("--longest-delay", "-1"), ("--tls-key", "/nowhere.pem")],
    ],
)
def test_options_keep_to_their_ranges(refused: Refused, option: str, wrong: str) -> None:
    assert option in refused(option, wrong)


def test_certificate_and_key_go_together(refused: Refused, made: Certificates, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = make_certificates(tmp_path / "other")
    certificate, key = ("--tls-certificate", str(made.server)), ("--tls-key", str(made.server_key))
    assert "--tls-key is missing" in refused(*certificate)
    assert "--tls-certificate is missing" in refused(*key)
    for wrong in (other.server_key, made.authority):
        told = refused(*certificate, "--tls-key", str(wrong))
        assert "not of each other" in told
        assert told.count("\n") == 1


def test_without_its_libraries_it_says_how_to_get_them(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("inbox.testing.orbit_server")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    told = refused()
    assert told == "inbox orbit serve: the server needs aiohttp: pip install 'idempotent-inbox[cli,orbit-server]'\n"
