"""docker-compose.yml gives what the tests are promised, although most machines that run them have no engine."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.services.brokers import broker_dsn
from tests.services.catalog import DATABASE, DATABASE_SETTINGS, PAIRS, PASSWORD, SERVICES, USER, Offer
from tests.services.databases import INIT_SQL, database_dsn
from tests.services.docker import BROKER_OVERRIDE, BROKER_SETTINGS, COMPOSE_FILE
from tests.services.probe import parse_version

COMPOSE: dict[str, Any] = yaml.safe_load(COMPOSE_FILE.read_text())
DATABASES = [offer for offer in SERVICES.values() if offer.is_database]
BROKERS = [offer for offer in SERVICES.values() if not offer.is_database]
IMAGES = {"MySQL": "mysql", "MariaDB": "mariadb", "RabbitMQ": "rabbitmq"}


def by_name(offer: Offer) -> str:
    return offer.name


def test_it_has_the_services_of_the_tests_and_no_others() -> None:
    assert COMPOSE["services"].keys() == SERVICES.keys()


@pytest.mark.parametrize("offer", SERVICES.values(), ids=by_name)
def test_each_image_is_of_the_product_and_new_enough(offer: Offer) -> None:
    image, _, tag = COMPOSE["services"][offer.name]["image"].partition(":")

    assert image == IMAGES[offer.product]
    assert parse_version(tag if "." in tag else f"{tag}.0") >= offer.at_least


def test_a_plain_up_brings_the_newest_pair_and_the_profile_oldest_the_other() -> None:
    profiles = {name: service.get("profiles", []) for name, service in COMPOSE["services"].items()}

    assert profiles[PAIRS["newest"].database] == profiles[PAIRS["newest"].broker] == []
    assert profiles[PAIRS["oldest"].database] == profiles[PAIRS["oldest"].broker] == ["oldest"]


@pytest.mark.parametrize("offer", SERVICES.values(), ids=by_name)
def test_each_service_has_a_health_check_that_can_succeed_and_end(offer: Offer) -> None:
    check = COMPOSE["services"][offer.name]["healthcheck"]

    assert check["test"][0] == "CMD"
    assert {"interval", "timeout", "retries"} <= check.keys()


@pytest.mark.parametrize("offer", DATABASES, ids=by_name)
def test_the_databases_run_with_the_settings_that_the_promise_rests_on(offer: Offer) -> None:
    arguments = COMPOSE["services"][offer.name]["command"]

    assert dict(argument.removeprefix("--").split("=") for argument in arguments) == DATABASE_SETTINGS


@pytest.mark.parametrize("offer", DATABASES, ids=by_name)
def test_the_databases_have_the_user_and_the_rights_of_the_tests(offer: Offer) -> None:
    environment = COMPOSE["services"][offer.name]["environment"]
    prefix = offer.product.upper()
    granted = {config["source"]: config["target"] for config in COMPOSE["services"][offer.name]["configs"]}

    assert environment[f"{prefix}_USER"] == USER
    assert environment[f"{prefix}_PASSWORD"] == PASSWORD
    assert environment[f"{prefix}_DATABASE"] == DATABASE
    assert granted["grant"].startswith("/docker-entrypoint-initdb.d/")
    assert COMPOSE["configs"]["grant"]["content"].strip() == INIT_SQL.strip().splitlines()[-1]
    assert f"{USER}:{PASSWORD}@" in database_dsn(1)


@pytest.mark.parametrize("offer", BROKERS, ids=by_name)
def test_the_brokers_have_the_user_of_the_tests(offer: Offer) -> None:
    environment = COMPOSE["services"][offer.name]["environment"]

    login = f"{environment['RABBITMQ_DEFAULT_USER']}:{environment['RABBITMQ_DEFAULT_PASS']}@"
    assert login in broker_dsn(1)


@pytest.mark.parametrize("offer", BROKERS, ids=by_name)
def test_a_broker_keeps_its_data_over_a_restart_because_its_node_keeps_its_name(offer: Offer) -> None:
    assert COMPOSE["services"][offer.name]["hostname"] == offer.name


@pytest.mark.parametrize("offer", SERVICES.values(), ids=by_name)
def test_ports_are_published_on_loopback_only_and_can_be_moved(offer: Offer) -> None:
    inside = "3306" if offer.is_database else "5672"
    variable = offer.variable.replace("_DSN", "_PORT")

    (port,) = COMPOSE["services"][offer.name]["ports"]
    assert re.fullmatch(rf"127\.0\.0\.1:\$\{{{variable}:-\d+\}}:{inside}", port)


def test_the_default_ports_do_not_collide() -> None:
    ports = [re.findall(r":-(\d+)", port) for service in COMPOSE["services"].values() for port in service["ports"]]

    assert len({port for (port,) in ports}) == len(SERVICES)


@pytest.mark.parametrize("offer", BROKERS, ids=by_name)
def test_the_tests_add_a_tls_listener_and_nothing_else(offer: Offer, tmp_path: Path) -> None:
    override = BROKER_OVERRIDE.format(name=offer.name, tls_port=1, tls=tmp_path, settings=tmp_path / "tls.conf")

    added = yaml.safe_load(override)[offer.name]
    assert added.keys() == {"ports", "volumes"}
    assert added["ports"] == ["127.0.0.1:1:5671"]
    assert "listeners.ssl.default = 5671" in BROKER_SETTINGS
