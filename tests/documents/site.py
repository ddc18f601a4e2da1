"""`python -m tests.documents.site`: put tests to which pages link into the built site, and let the links lead there.

In the repository a link to `../tests/crash/test_zombies.py` leads to the file. Of that the site has a copy, as text.
"""

import re
import shutil

from tests.documents.markdown import ROOT

SITE = ROOT / "build" / "site"
_LINK = re.compile(r'href="((?:\.\./)+)(tests/[^"#]+\.py)"')


def copy_tests() -> None:
    """Change each page that links to tests, and copy those that it names."""
    for page in SITE.rglob("*.html"):
        text = page.read_text("utf-8")
        for _, name in _LINK.findall(text):
            copy = SITE / f"{name}.txt"
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, copy)
        # One step less: what is beside docs in the repository is inside of the site.
        page.write_text(_LINK.sub(lambda link: f'href="{link[1].removeprefix("../")}{link[2]}.txt"', text), "utf-8")


if __name__ == "__main__":
    copy_tests()
