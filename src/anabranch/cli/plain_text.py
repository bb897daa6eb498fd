"""Untrusted text on a terminal: users' data, names, errors. Printed literally.

Rich interprets brackets and colons of a plain ``str`` as markup, and passes escapes through.
"""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from anabranch.http.text_table import visible


def literal(text: str, style: str = "") -> Text:
    r"""Text that Rich prints as is, on one line or several.

    >>> literal("[error] :apple: \x1b[2J").plain
    '[error] :apple: \\x1b[2J'
    """
    return Text(visible(text, lines=True), style)


def plain_table(*columns: str) -> Table:
    """A table without lines, for those who read and those who cut columns out."""
    return Table(*columns, box=None, padding=(0, 2, 0, 0))
