"""Database URLs that would get round the guard, or could never work."""

import pytest

from inbox.adapters.mysql.engine import make_engine
from inbox.adapters.mysql.url import checked_url
from inbox.config import DatabaseSettings
from inbox.errors import ConfigurationError

LOGIN = "app:s3cret@db:3306"


@pytest.mark.parametrize(
    ("given", "driver"),
    [
        (f"mysql://{LOGIN}/app", "mysql+aiomysql"),
        (f"mariadb://{LOGIN}/app", "mariadb+aiomysql"),
        (f"mysql+aiomysql://{LOGIN}/app", "mysql+aiomysql"),
        (f"mysql+asyncmy://{LOGIN}/app?charset=utf8mb4", "mysql+asyncmy"),
        (f"mariadb+asyncmy://{LOGIN}/app?unix_socket=/run/db.sock", "mariadb+asyncmy"),
    ],
)
def test_good_urls(given: str, driver: str) -> None:
    url = checked_url(given)

    assert url.drivername == driver
    assert url.query["charset"] == "utf8mb4"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("", "write it as"),
        ("s3cret", "write it as"),
        ("mysql://app:s3cret@db:port/app", "write it as"),
        (f"postgresql://{LOGIN}/app", "postgresql"),
        (f"mysql+pymysql://{LOGIN}/app", "mysql+aiomysql://"),
        (f"mysql+mysqldb://{LOGIN}/app", "mysql+asyncmy://"),
        (f"mysql://{LOGIN}", "names no database"),
        (f"mysql://{LOGIN}/", "names no database"),
        (f"mysql://{LOGIN}/app?local_infile=1", "local_infile"),
        (f"mysql://{LOGIN}/app?init_command=COMMIT", "init_command"),
        (f"mysql://{LOGIN}/app?stmt_cache_size=10", "stmt_cache_size"),
        (f"mysql://{LOGIN}/app?ssl_ca=/x", "tls=True"),
        (f"mysql://{LOGIN}/app?charset=gbk", "charset"),
    ],
)
def test_bad_urls_name_the_fix_and_not_the_password(given: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        make_engine(given, DatabaseSettings(), 1.0)

    assert says in str(raised.value)
    assert "s3cret" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_an_authority_that_cannot_be_read() -> None:
    with pytest.raises(ConfigurationError, match="tls_ca"):
        make_engine(f"mysql://{LOGIN}/app", DatabaseSettings(tls=True, tls_ca="/no/such/file"), 1.0)
