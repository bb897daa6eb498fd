"""Texts of others on a terminal: users' data, names, errors. Shown as they are, never obeyed.

Rich takes brackets and colons of a plain ``str`` for its own language, and sends escapes on.
"""

from __future__ import annotations

from rich.text import Text

from anabranch.http.text_table import visible


def literal(text: str, style: str = "") -> Text:
    r"""A text on one line or several, as it is.

    >>> literal("[error] :apple: \x1b[2J").plain
    '[error] :apple: \\x1b[2J'
    """
    return Text(visible(text, lines=True), style)
