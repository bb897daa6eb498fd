"""Which files count as those that use the shared Spark, and what names tests may have."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spreading import check_names, uses_shared_spark


@pytest.mark.parametrize(
    ("text", "uses"),
    [
        ("def test_a(spark: SparkSession, tmp_path: Path) -> None: ...", True),
        ('pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]', True),
        ("def ended(_started_spark: SparkSession) -> ab.Pipeline: ...", True),
        ("@pytest.mark.spark\ndef test_of_a_process_of_its_own() -> None: ...", False),
        ("from tests.spark import killable", False),
    ],
)
def test_a_file_that_asks_for_the_session_of_all_tests(
    tmp_path: Path, text: str, uses: bool
) -> None:
    file = tmp_path / "test_something.py"
    file.write_text(text)
    assert uses_shared_spark(file) is uses


def test_tests_of_the_same_name_are_refused() -> None:
    check_names(["a.py::test[GET /x]", "a.py::test[GET /y]", "b.py::test"])
    with pytest.raises(pytest.UsageError, match=r"the same name: a\.py::test"):
        check_names(["a.py::test", "b.py::test", "a.py::test"])
