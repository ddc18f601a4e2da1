"""A block that names a file of the examples is that file: what a reader types is what the tests run."""

import re
from pathlib import Path

import pytest
from sqlalchemy import MetaData

from inbox import define_tables
from inbox.adapters.mysql.schema import render
from inbox.schema_files import Dialect
from tests.documents.markdown import ROOT, Block, all_blocks, documents

EXAMPLES = ROOT / "examples"
NAMED = [block for file in documents() for block in all_blocks(file) if 'title="' in block.language]
#: What a reader does not type: programs write it, or it is what a checkout has besides.
NOT_TYPED = {
    "billing/alembic.ini",
    "billing/migrations/script.py.mako",
    "billing/migrations/versions/0001_billing_and_inbox.py",
    "billing/publisher.py",
    "kill_test/pytest.ini",
    "warehouse/schema/mariadb/0001_inbox.sql",
    "warehouse/schema/mysql/0001_inbox.sql",
}


def name_of(block: Block) -> str:
    found = re.fullmatch(r'\w+ title="([^"]+)"', block.language)
    assert found is not None, f'{block}: write the language and title="the file\'s path"'
    return found.group(1)


@pytest.mark.parametrize("block", NAMED, ids=str)
def test_a_block_is_the_file_that_it_names(block: Block) -> None:
    name = name_of(block)
    assert block.text == (EXAMPLES / name).read_text("utf-8"), f"{block} differs from examples/{name}"
    lines = block.file.read_text("utf-8").splitlines()
    before = lines[max(0, block.line - 6) : block.line - 2]
    assert any(f"`{name}`" in line for line in before), (
        f"{block}: say `{name}` above it, for titles do not show everywhere"
    )


def test_a_reader_is_given_all_that_they_type() -> None:
    """Of every example that a document leads through."""
    named = {name_of(block) for block in NAMED}
    assert {name.partition("/")[0] for name in named} >= {"billing", "warehouse", "kill_test", "api"}
    folders = [EXAMPLES / folder for folder in {name.partition("/")[0] for name in named}]
    files = {path.relative_to(EXAMPLES) for folder in folders for path in folder.rglob("*") if path.is_file()}
    typed = {str(file) for file in files if file.name != "__init__.py" and file.suffix != ".pyc"}
    assert named == typed - NOT_TYPED


@pytest.mark.parametrize("dialect", ["mysql", "mariadb"])
def test_the_schema_that_a_reader_prints_and_copies_is_the_schema(dialect: Dialect) -> None:
    ours = ROOT / "schema" / dialect
    copied = EXAMPLES / "warehouse/schema" / dialect
    assert contents(copied) == contents(ours)
    assert render(dialect, define_tables(MetaData())) == "\n".join(contents(ours).values())


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text("utf-8") for path in sorted(folder.iterdir())}
