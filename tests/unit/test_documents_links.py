"""Links lead somewhere, and the site has every page."""

from pathlib import Path

import pytest
import yaml

from tests.documents import site
from tests.documents.markdown import ROOT, anchors, documents, links, slug

DOCS = ROOT / "docs"


class Configuration(yaml.SafeLoader):
    """Reads `mkdocs.yml` without importing what it names."""


Configuration.add_multi_constructor("tag:yaml.org,2002:python/name:", lambda _loader, name, _node: name)


def by_name(file: Path) -> str:
    return str(file.relative_to(ROOT))


@pytest.mark.parametrize("file", documents(), ids=by_name)
def test_links_lead_to_files_and_headings(file: Path) -> None:
    wrong = []
    for link in links(file):
        path, _, anchor = link.target.partition("#")
        if "://" in path:
            continue
        target = (file.parent / path).resolve() if path else file
        if not target.exists():
            wrong.append(f"{link}: {link.target} is not there")
        elif anchor and anchor not in anchors(target):
            wrong.append(f"{link}: {link.target} has no such heading")
    assert wrong == []


@pytest.mark.parametrize("file", sorted(DOCS.rglob("*.md")), ids=by_name)
def test_pages_of_the_site_link_to_pages_of_the_site_and_to_tests(file: Path) -> None:
    """Of tests the site has copies (`tests.documents.site`)."""
    outside = [
        f"{link}: {link.target}"
        for link in links(file)
        if "://" not in link.target
        and not any((file.parent / link.target).resolve().is_relative_to(folder) for folder in (DOCS, ROOT / "tests"))
    ]
    assert outside == []


def test_links_to_tests_lead_to_their_copies_in_the_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "SITE", tmp_path)
    for name, up in (("matrix.html", "../"), ("reference/api.html", "../../")):
        page = tmp_path / name
        page.parent.mkdir(exist_ok=True)
        page.write_text(f'<a href="{up}tests/crash/world.py">1</a> <a href="index.html">2</a>')
    site.copy_tests()
    here = '<a href="tests/crash/world.py.txt">1</a> <a href="index.html">2</a>'
    assert (tmp_path / "matrix.html").read_text() == here
    assert (tmp_path / "reference/api.html").read_text() == here.replace("tests/", "../tests/")
    copy = tmp_path / "tests/crash/world.py.txt"
    assert copy.read_bytes() == (ROOT / "tests/crash/world.py").read_bytes()


@pytest.mark.parametrize("file", documents(), ids=by_name)
def test_headings_have_ids_of_their_own(file: Path) -> None:
    found = [line for line in file.read_text("utf-8").splitlines() if line.startswith("## ")]
    assert len({slug(line[3:]) for line in found}) == len(found)


def test_every_page_is_in_the_navigation_once() -> None:
    configuration = yaml.load((ROOT / "mkdocs.yml").read_text("utf-8"), Configuration)  # noqa: S506 - a safe loader
    pages = _pages(configuration["nav"])
    assert sorted(pages) == sorted(str(file.relative_to(DOCS)) for file in DOCS.rglob("*.md"))
    assert {file.suffix for file in DOCS.rglob("*") if file.is_file()} == {".md"}


def _pages(entry: object) -> list[str]:
    match entry:
        case str():
            return [entry]
        case list():
            return [page for each in entry for page in _pages(each)]
        case dict():
            return [page for each in entry.values() for page in _pages(each)]
        case _:
            raise AssertionError(entry)


def test_ids_are_made_as_github_makes_them() -> None:
    assert slug("What a handler may do") == "what-a-handler-may-do"
    assert slug("`Retry(after)`, and *rules*") == "retryafter-and-rules"
    assert slug("Commit unknown: 1205/1213") == "commit-unknown-12051213"
