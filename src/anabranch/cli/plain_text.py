"""Untrusted text on a terminal: users' data, names, errors. Printed literally.

Rich interprets brackets and colons of a plain ``str`` as markup, and passes escapes through.
"""

from __future__ import annotations

from rich.text import Text

from anabranch.http.text_table import visible


def literal(text: str, style: str = "") -> Text:
    r"""Text that Rich prints as is, on one line or several.

    >>> literal("[error] :apple: \x1b[2J").plain
    '[error] :apple: \\x1b[2J'
    """
    return Text(visible(text, lines=True), style)
