"""Numbers and tables as text. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def per_second(rate: float) -> str:
    """A rate in thousands, with as many digits as mean something.

    >>> per_second(671_234), per_second(3_712), per_second(912)
    ('671 k', '3.7 k', '0.9 k')
    """
    thousands = rate / 1000
    return f"{thousands:.0f} k" if thousands >= 10 else f"{thousands:.1f} k"


def milliseconds(seconds: float) -> str:
    """Seconds in milliseconds.

    >>> milliseconds(0.3567), milliseconds(0.0042)
    ('357', '4.2')
    """
    value = seconds * 1000
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def ratio_text(ratio: float) -> str:
    """A ratio.

    >>> ratio_text(3.0), ratio_text(0.387), ratio_text(153.2)
    ('3.0×', '0.39×', '153×')
    """
    if ratio >= 20:
        return f"{ratio:.0f}×"
    return f"{ratio:.1f}×" if ratio >= 2 else f"{ratio:.2f}×"


def count(number: float) -> str:
    """A number with its thousands apart.

    >>> count(20000)
    '20,000'
    """
    return f"{number:,.0f}"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A Markdown table; the columns in ``right`` hold numbers."""
    rule = ["---:" if place in right else "---" for place in range(len(heads))]
    lines = [_line(heads), f"|{'|'.join(rule)}|", *(_line(row) for row in rows)]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
