"""Results as a picture: an SVG of bars, written by hand, for it needs nothing else that way. Pure.

It has no background, and its colours follow the reader's: light, or dark where a style sheet is told so (CSS,
`prefers-color-scheme`).
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import groupby
from typing import Any, Final

_WIDTH: Final = 860
_NAMES: Final = 270  # where the bars begin
_FIGURES: Final = 110  # kept free to the right of the longest bar
_BAR: Final = 16
_STEP: Final = 22
_HEAD: Final = 46
_GAP: Final = 18
_TITLE: Final = 34
#: Of a course: where it begins, and its height.
_AXIS: Final = 50
_HEIGHT: Final = 110

_STYLE: Final = """
  text { font: 13px system-ui, sans-serif; fill: #24292f }
  .title { font-weight: 600; font-size: 15px }
  .load { font-weight: 600 }
  .small { font-size: 12px; fill: #57606a }
  .raw { fill: #8c959f } .other { fill: #b6a16b } .inbox { fill: #2f6fbe }
  .course { fill: none; stroke: #2f6fbe; stroke-width: 1.5 }
  .one { stroke: #57606a; stroke-dasharray: 3 3 } .spread { stroke: #24292f; stroke-width: 1.5 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .small { fill: #9da7b1 }
    .raw { fill: #7d8590 } .other { fill: #a08c55 } .inbox { fill: #5b9bea }
    .one { stroke: #9da7b1 } .spread { stroke: #e6edf3 }
  }
"""


def plot(rows: Sequence[dict[str, Any]], caption: str) -> str:
    """Bars of each consumer's ratio to the one by hand, with the rounds' spread; a group for each load.

    Args:
        rows: as in `latest.json`; those without a ratio are left out.
        caption: of the whole: servers, machine, date.
    """
    known = [row for row in rows if row["ratio_to_raw"] is not None]
    scale = (_WIDTH - _NAMES - _FIGURES) / max([1.0, *(row["ratio_high"] for row in known)])
    parts, top = [_text(0, 16, "Events per second, as a ratio to a consumer by hand", "title")], _TITLE
    parts.append(_text(0, 34, caption, "small"))
    for (workload, in_flight), group in groupby(known, key=lambda row: (row["workload"], row["in_flight"])):
        listed = list(group)
        parts.append(_text(0, top + _HEAD - 12, f"{workload}, {in_flight} in flight", "load"))
        top += _HEAD
        one = _NAMES + scale
        bottom = top + len(listed) * _STEP
        parts += [_bar(row, top + place * _STEP, scale) for place, row in enumerate(listed)]
        parts.append(f'<line class="one" x1="{one:.1f}" x2="{one:.1f}" y1="{top - 4}" y2="{bottom}"/>')
        top = bottom + _GAP - _HEAD // 3
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {top + _GAP}" role="img" '
        f'aria-label="Events per second, as a ratio to a consumer by hand">\n<style>{_STYLE}</style>\n{body}\n</svg>\n'
    )


def _bar(row: dict[str, Any], top: int, scale: float) -> str:
    middle = top + _BAR // 2
    end = _NAMES + row["ratio_to_raw"] * scale
    low, high = (_NAMES + row[name] * scale for name in ("ratio_low", "ratio_high"))
    kind = row["consumer"] if row["consumer"] in ("raw", "inbox") else "other"
    # One alone is compared by its latency.
    told = f"{row['p50_ms']:.1f} ms" if row["workload"].startswith("one alone") else f"{row['msg_per_s']:,}/s"
    figures = f"{row['ratio_to_raw']:.2f} · {told}"
    return "\n".join(
        [
            _text(_NAMES - 10, middle + 5, row["id"], "", anchor="end"),
            f'<rect class="{kind}" x="{_NAMES}" y="{top}" width="{end - _NAMES:.1f}" height="{_BAR}" rx="2"/>',
            f'<line class="spread" x1="{low:.1f}" x2="{high:.1f}" y1="{middle}" y2="{middle}"/>',
            _text(max(end, high) + 8, middle + 5, figures, "small"),
        ]
    )


def _text(left: float, top: float, words: str, kind: str, *, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{left:.1f}" y="{top}" text-anchor="{anchor}">{escape(words)}</text>'


def lines(courses: Sequence[tuple[str, Sequence[tuple[float, float]], float]], caption: str) -> str:
    """A small picture for each course: how a value went over time, below the bound that it must keep.

    Args:
        courses: a name, pairs of seconds and value, and the bound, which is dashed.
        caption: of the whole.
    """
    parts, top = [_text(0, 16, caption, "title")], _TITLE + 16
    for name, samples, bound in courses:
        longest = max([1.0, *(second for second, _ in samples)])
        most = max([bound, *(value for _, value in samples)]) * 1.05

        def place(second: float, value: float, *, top: int = top, longest: float = longest, most: float = most) -> str:
            return f"{_AXIS + second / longest * (_WIDTH - _AXIS):.1f},{top + _HEIGHT * (1 - value / most):.1f}"

        points = " ".join(place(second, value) for second, value in samples)
        left, level = place(0, bound).split(",")
        parts += [
            _text(_AXIS, top - 6, name, "load"),
            _text(_AXIS - 8, float(level) + 4, f"{bound:.0f}", "small", anchor="end"),
            f'<line class="one" x1="{left}" x2="{_WIDTH}" y1="{level}" y2="{level}"/>',
            f'<polyline class="course" points="{points}"/>',
            _text(_AXIS - 8, top + _HEIGHT, "0", "small", anchor="end"),
            _text(_WIDTH, top + _HEIGHT + 14, f"{longest:.0f} s", "small", anchor="end"),
        ]
        top += _HEIGHT + _HEAD
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {top}" role="img" '
        f'aria-label="{escape(caption)}">\n<style>{_STYLE}</style>\n{body}\n</svg>\n'
    )
