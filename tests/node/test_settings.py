"""Files must outlast the queries that may read them."""

from __future__ import annotations

import pytest

from anabranch.coordinator.settings import Settings


def test_the_defaults_fit_together() -> None:
    chosen = Settings()
    assert chosen.grace_seconds == chosen.query_seconds + 60


@pytest.mark.parametrize(("grace", "query"), [(60.0, 0.0), (0.0, 0.0), (61.0, 1.0), (660.0, 600.0)])
def test_what_leaves_a_minute_is_accepted(grace: float, query: float) -> None:
    assert Settings(grace_seconds=grace, query_seconds=query).query_seconds == query


@pytest.mark.parametrize(("grace", "query"), [(119.0, 60.0), (60.0, 0.5), (120.0, -1.0)])
def test_what_a_query_could_outlast_is_refused(grace: float, query: float) -> None:
    with pytest.raises(ValueError, match="query_seconds"):
        Settings(grace_seconds=grace, query_seconds=query)
