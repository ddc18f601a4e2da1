"""Write `docs/reference` from the code."""

from tests.documents import PAGES, REFERENCE

for name, page in PAGES.items():
    (REFERENCE / name).write_text(page(), encoding="utf-8")
    print(REFERENCE / name)
