"""Tokens: which ones are valid, and how they stay out of other processes."""

from __future__ import annotations

import os

from anabranch.errors import TokenInvalid

TOKEN_VARIABLE = "ANABRANCH_TOKEN"


def forget_token_variable() -> None:
    """Take the token out of the environment, which the node, the JVM and Python workers inherit.

    Otherwise user functions could read it. Whoever reads the variable does so before.
    """
    os.environ.pop(TOKEN_VARIABLE, None)


def check_token(token: str) -> None:
    """Reject a token that is empty or that a header cannot carry: ``TokenInvalid``.

    An empty one would admit anyone who sends an empty header.

    >>> check_token("s3cret")
    >>> check_token("two words")
    Traceback (most recent call last):
    anabranch.errors.TokenInvalid: [coordinator.token_invalid] The token has a character ...
    """
    what = "is empty" if not token else "has a character that a header cannot carry"
    if not token or not all("!" <= character <= "~" for character in token):
        raise TokenInvalid(
            f"The token {what}",
            do="Use printable ASCII without blanks, or no token at all on 127.0.0.1.",
        )
