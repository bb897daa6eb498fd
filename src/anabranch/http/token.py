"""What a token may be: something that every caller can send in a header."""

from __future__ import annotations

from anabranch.errors import TokenInvalid


def check_token(token: str) -> None:
    """Refuse a token that is empty or that no header carries as it is: ``TokenInvalid``.

    An empty one would let in whoever sends an empty header.

    >>> check_token("s3cret")
    >>> check_token("two words")
    Traceback (most recent call last):
    anabranch.errors.TokenInvalid: [coordinator.token_invalid] The token has a character ...
    """
    what = "is empty" if not token else "has a character that no header of a call could carry"
    if not token or not all("!" <= character <= "~" for character in token):
        raise TokenInvalid(
            f"The token {what}",
            do="Give one of printable ASCII characters without blanks, or none at all on "
            "127.0.0.1.",
        )
