"""The programs of our own cases, at tiny sizes, in the Spark of all tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks import flows, held, ours, rescale
from benchmarks.cases import cases
from benchmarks.child import Option, Spec
from benchmarks.data import write_held, write_stream
from benchmarks.sizes import QUICK, Held, Stream

STREAM = Stream("tiny", rows=60, keys=20, batches=3, warm=1)


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.parametrize("operator", ["aggregate", "map"])
def test_every_batch_is_a_step_with_its_parts(
    spark: SparkSession, tmp_path: Path, operator: str
) -> None:
    write_stream(tmp_path / "data", STREAM)
    options = {"operator": operator, "column": "amount"}
    spec = Spec(str(tmp_path / "data"), str(tmp_path / "work"), "", 120.0, {**options})
    outcome = ours.measure(spec)
    assert [batch.rows for batch in outcome.batches] == [60, 60, 60]
    assert outcome.cut is False
    assert outcome.info["keys"] == 20
    for batch in outcome.batches:
        told = batch.parts
        assert told["plan"] + told["run"] + told["commit"] + told["after"] == pytest.approx(
            batch.seconds
        )
        assert {"receive", "operator", "lookup", "write", "stage"} <= set(told)
    assert sum(batch.seconds for batch in outcome.batches) <= outcome.seconds


@pytest.mark.spark
def test_wrong_sums_do_not_go_unnoticed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_stream(tmp_path / "data", STREAM)
    monkeypatch.setattr(flows, "sum_of_amounts", lambda directory, batches: 1)
    spec = Spec(
        str(tmp_path / "data"),
        str(tmp_path / "work"),
        "",
        120.0,
        {"operator": "aggregate", "column": "amount"},
    )
    with pytest.raises(AssertionError, match="after 3 steps"):
        ours.measure(spec)


@pytest.mark.soak
@pytest.mark.spark
def test_held_keys_are_measured_until_the_base_is_merged(
    spark: SparkSession, tmp_path: Path
) -> None:
    sizes = Held(many=400, few=40, rows=30, load=200, warm=1, most=3)
    for name, keys in (("many", sizes.many), ("few", sizes.few)):
        write_held(tmp_path / "data" / name, sizes, keys)
    options = {"warm": 1, "most": 3, "load many": 2, "load few": 1}
    spec = Spec(str(tmp_path / "data"), str(tmp_path / "work"), "", 120.0, {**options})
    outcome = held.measure(spec)
    # So little state is one young run, which the first step after the loading absorbs.
    assert outcome.info["base merged after"] == "1 steps"
    assert outcome.info["steps"] == 1
    assert [batch.rows for batch in outcome.batches] == [30, 30]
    assert float(outcome.info["many: merge, longest"]) > 0


@pytest.mark.soak
@pytest.mark.spark
def test_few_keys_are_measured_for_as_many_steps_as_many(
    spark: SparkSession, tmp_path: Path
) -> None:
    sizes = Held(many=400, few=40, rows=30, load=200, warm=1, most=3)
    write_held(tmp_path / "data" / "few", sizes, sizes.few)
    spec = Spec(str(tmp_path / "data"), str(tmp_path / "work"), "", 120.0, {"load few": 1})
    batches, until = held._steps(spec, "few", "few", 3, to_the_end=True)
    assert until.merged_after == 1
    assert [batch.rows for batch in batches] == [30, 30, 30]


def test_every_case_has_its_program() -> None:
    root = Path(ours.__file__).parent.parent
    for case in cases(QUICK):
        path = case.program if case.peer else f"{case.program.replace('.', '/')}.py"
        assert (root / path).exists(), case.name


@pytest.mark.soak
@pytest.mark.spark
def test_a_rescale_is_measured_with_the_steps_around_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    base = Held(many=200, few=0, rows=20, load=100, warm=1, most=60)
    write_held(tmp_path / "data", base, base.many)
    options: dict[str, Option] = {"load": 2, "warm": 1, "steady": 3, "runs": 2, "way": "batched"}
    options["bins"] = 16
    spec = Spec(str(tmp_path / "data"), str(tmp_path / "work"), "", 6000.0, options)
    outcome = rescale.measure(spec)
    assert outcome.info["runs"] == 2
    for number in (1, 2):
        assert outcome.info[f"{number}: bins"] == 8
        assert float(outcome.info[f"{number}: keys"]) > 50
        assert float(outcome.info[f"{number}: copied"]) > 0
        assert float(outcome.info[f"{number}: longest gap"]) > 0
    during = [batch.parts["during"] for batch in outcome.batches]
    assert sum(during) == outcome.info["1: steps"]
    assert during[:3] == [0.0] * 3
    assert during[-3:] == [0.0] * 3
    assert {batch.rows for batch in outcome.batches} == {20}
