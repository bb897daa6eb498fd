"""Spark's error messages, shortened to a sentence."""

from __future__ import annotations

import re

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException


def sentence(error: PySparkException | Py4JJavaError) -> str:
    """The first sentence of Spark's message, without its error class and its query context."""
    text = str(error.java_exception if isinstance(error, Py4JJavaError) else error).strip()
    text = re.sub(r"^\[[A-Z0-9_.]+\]\s*", "", text)
    text = re.split(r"\s*SQLSTATE|\s*;\s*line|\n\s*\n|\n== SQL", text)[0]
    return " ".join(text.split()).rstrip(".; ")
