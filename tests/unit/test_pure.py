"""What the run with the lowest libraries need not repeat, and what it must."""

from pathlib import Path

import pytest

from tests.pure import is_pure

CORE = "from inbox.core.event import Event\n"


@pytest.mark.parametrize(
    "text",
    [
        CORE,
        "from inbox.core.policy import RetryPolicy\nimport json\nimport pytest\n",
        "import inbox.core.records\nfrom inbox.errors import Retry\n",
        "from tests.unit.model import Model\n",
    ],
)
def test_the_core_alone_is_pure(text: str, tmp_path: Path) -> None:
    assert is_pure(write(text, tmp_path))


@pytest.mark.parametrize(
    "text",
    [
        "import json\n",
        CORE + "import sqlalchemy\n",
        CORE + "from inbox import Inbox\n",
        CORE + "from inbox.runtime.gate import RunGate\n",
        CORE + "from inbox.corea import Event\n",
        CORE + "import subprocess\n",
        CORE + "from importlib import import_module\n",
        CORE + "from tests.unit.engine import Engine\n",
        CORE + "def test() -> None:\n    import yarl\n",
    ],
    ids=lambda text: text.removeprefix(CORE).strip().replace("\n", " "),
)
def test_whatever_may_reach_a_library_is_not(text: str, tmp_path: Path) -> None:
    assert not is_pure(write(text, tmp_path))


def write(text: str, folder: Path) -> Path:
    file = folder / "test_x.py"
    file.write_text(text)
    return file
