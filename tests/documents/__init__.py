"""The reference that is written from the code, and what the tests read out of the documents.

`python -m tests.documents` writes `docs/reference`; a unit test fails where it would write something else.
"""

from collections.abc import Callable
from pathlib import Path

from tests.documents import api, commands, errors, settings

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"

PAGES: dict[str, Callable[[], str]] = {
    "settings.md": settings.page,
    "errors.md": errors.page,
    "commands.md": commands.page,
    "api.md": api.page,
}
