"""The reference is what the code says."""

import pytest

from tests.documents import PAGES, REFERENCE
from tests.documents.docstrings import fenced, parse
from tests.documents.errors import check


@pytest.mark.parametrize("name", PAGES)
def test_the_reference_is_what_the_code_says(name: str) -> None:
    written = (REFERENCE / name).read_text("utf-8")
    assert written.splitlines() == PAGES[name]().splitlines(), "write it anew: python -m tests.documents"


def test_nothing_else_lies_there() -> None:
    assert {path.name for path in REFERENCE.iterdir()} == {*PAGES}


def test_a_code_without_a_meaning_and_a_meaning_without_a_code_are_found() -> None:
    with pytest.raises(AssertionError, match=r"there, and not described: \{'new'\}"):
        check({"old", "new"}, {"old"})
    with pytest.raises(AssertionError, match=r"described, and not there: \{'gone'\}"):
        check({"old"}, {"old", "gone"})


def test_a_docstring_is_taken_apart() -> None:
    said = parse("""One.

    Two:

        example()

    Args:
        first, second: of
            two lines.

        third: alone.

    Returns:
        What: it is
        of two lines.

    Raises:
        KeyError, no colon here
    """)
    assert said.text == "One.\n\nTwo:\n\n```python\nexample()\n```"
    assert said.entries == {
        "Args": [("first, second", "of two lines."), ("third", "alone.")],
        "Returns": [("", "What: it is of two lines.")],
        "Raises": [("", "KeyError, no colon here")],
    }
    assert said.of("Args", "second") == "of two lines."
    with pytest.raises(AssertionError, match="say nothing of fourth"):
        said.of("Args", "fourth")


def test_fences_stay_as_they_are() -> None:
    text = "One.\n\n```python\nif x:\n    y()\n```\n\nTwo."
    assert fenced(text) == text
