"""``process``: handles against plain Python, over many steps, with and without time-to-live."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.dataflow.flow import Dataflow
from anabranch.dataflow.validate import validate
from anabranch.errors import AnabranchError, InvalidDataflow, OutputMismatch, UserFunctionFailed
from anabranch.operators.dead_letter import RowFailure
from anabranch.operators.process import ProcessOperator
from anabranch.operators.rows import Rows
from anabranch.operators.states import build
from tests.dataflow.fakes import sink, source
from tests.operators.kept_states import Kept
from tests.operators.keyed_rows import make_rows

KEY = pa.schema([("who", pa.string())])
OPS = ("set", "unset", "append", "clear", "put", "drop", "empty", "any")
Command = tuple[str, str, int]


class Machine(ab.Process):
    """Does to its handles what its rows say, and shows all of it."""

    value = ab.ValueState("n bigint")
    anything = ab.ValueState()
    items = ab.ListState("n bigint, text string")
    names = ab.MapState("k bigint", "v string")

    def on_rows(self, key: Any, rows: list[Any]) -> Any:
        for row in rows:
            getattr(self, f"do_{row.op}")(row.arg)
        listed = [tuple(item) for item in self.items]
        named = sorted(self.names.items())
        assert len(self.items) == len(listed)
        assert len(self.names) == len(named)
        yield (key.who, repr((self.value.get(), self.anything.get(), listed, named)))

    def do_set(self, arg: int) -> None:
        self.value.set((self.value.get() or 0) + arg)

    def do_unset(self, arg: int) -> None:
        self.value.clear()

    def do_any(self, arg: int) -> None:
        self.anything.set({"seen": [*(self.anything.get() or {"seen": []})["seen"], arg]})

    def do_append(self, arg: int) -> None:
        self.items.append((arg, f"<{arg}>"))

    def do_clear(self, arg: int) -> None:
        self.items.clear()

    def do_put(self, arg: int) -> None:
        self.names[arg % 4] = f"{self.names.get(arg % 4, '')}{arg}"

    def do_drop(self, arg: int) -> None:
        if arg % 4 in self.names:
            del self.names[arg % 4]

    def do_empty(self, arg: int) -> None:
        self.names.clear()


class Mortal(Machine):
    """The same with times to live."""

    value = ab.ValueState("n bigint", ttl="50 milliseconds")
    anything = ab.ValueState(ttl="80 milliseconds")
    items = ab.ListState("n bigint, text string", ttl="50 milliseconds")
    names = ab.MapState("k bigint", "v string", ttl="80 milliseconds")


class Model:
    """What ``Machine`` should show; each thing with the time until which it lives."""

    def __init__(self, short: float, long: float) -> None:
        self.short, self.long = short, long
        self.value: dict[str, tuple[int, float]] = {}
        self.anything: dict[str, tuple[Any, float]] = {}
        self.items: dict[str, list[tuple[int, float]]] = {}
        self.names: dict[str, dict[int, tuple[str, float]]] = {}

    def age(self, now: float) -> None:
        self.value = {who: v for who, v in self.value.items() if v[1] > now}
        self.anything = {who: v for who, v in self.anything.items() if v[1] > now}
        self.items = {who: [v for v in vs if v[1] > now] for who, vs in self.items.items()}
        for names in self.names.values():
            for key in [key for key, v in names.items() if v[1] <= now]:
                del names[key]

    def do(self, who: str, op: str, arg: int, now: float) -> None:
        names = self.names.setdefault(who, {})
        match op:
            case "set":
                self.value[who] = (self.value.get(who, (0, 0))[0] + arg, now + self.short)
            case "unset":
                self.value.pop(who, None)
            case "any":
                seen = self.anything.get(who, ({"seen": []}, 0))[0]["seen"]
                self.anything[who] = ({"seen": [*seen, arg]}, now + self.long)
            case "append":
                self.items.setdefault(who, []).append((arg, now + self.short))
            case "clear":
                self.items[who] = []
            case "put":
                before = names.get(arg % 4, ("", 0))[0]
                names[arg % 4] = (f"{before}{arg}", now + self.long)
            case "drop":
                names.pop(arg % 4, None)
            case "empty":
                names.clear()

    def shown(self, who: str) -> str:
        return repr(
            (
                self.value.get(who, (None, 0))[0],
                self.anything.get(who, (None, 0))[0],
                [(n, f"<{n}>") for n, _ in self.items.get(who, [])],
                sorted((k, v) for k, (v, _) in self.names.get(who, {}).items()),
            )
        )


def operator(process: type[ab.Process], output: str = "who string, shown string") -> Any:
    flow = Dataflow("flow")
    rows = flow.source("rows", source("who string, op string, arg bigint"))
    made = rows.key_distribute("by-who", "who").process("machine", process, output=output)
    made.sink("out", sink())
    typed = validate(flow.graph())
    return build(typed, typed.graph.stateful()[0])


def rows_of(commands: list[Command], spread: int = 1 << 32) -> Rows:
    values = pa.table(
        [[c[0] for c in commands], [c[1] for c in commands], [c[2] for c in commands]],
        schema=pa.schema([("who", pa.string()), ("op", pa.string()), ("arg", pa.int64())]),
    )
    keys = [(command[0],) for command in commands]
    return make_rows(keys, KEY, values, spread=spread, order=range(len(commands)))


commands = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c"]), st.sampled_from(OPS), st.integers(0, 9)),
    min_size=1,
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(commands, st.integers(0, 60)), max_size=8),
    st.sampled_from([Machine, Mortal]),
    st.sampled_from([1, 2, 1 << 32]),
)
def test_handles_are_what_plain_python_would_keep(
    steps: list[tuple[list[Command], int]], process: type[ab.Process], spread: int
) -> None:
    milli = 10**6
    forever = float("inf")
    model = Model(50 * milli, 80 * milli) if process is Mortal else Model(forever, forever)
    with tempfile.TemporaryDirectory() as directory:
        kept = Kept(operator(process), KEY, Path(directory))
        for given_rows, passed in steps:
            kept.now_ns += passed * milli
            model.age(kept.now_ns)
            output = kept.step(rows_of(given_rows, spread))
            for who, op, arg in given_rows:
                model.do(who, op, arg, kept.now_ns)
            shown = dict(zip(*output.values.to_pydict().values(), strict=True))
            assert shown == {who: model.shown(who) for who in {c[0] for c in given_rows}}
        entries = sum(len(items) for items in model.items.values())
        if process is Machine:
            assert sum(kept.live["machine.items"]) == entries
            assert len(kept.scan("machine.items")) == entries
            assert sum(kept.live["machine.value"]) == len(model.value)
            assert sum(kept.live["machine.names"]) == sum(map(len, model.names.values()))


def test_appending_to_a_list_looks_nothing_up(tmp_path: Path) -> None:
    class Appends(ab.Process):
        items = ab.ListState("n bigint")

        def on_rows(self, key: Any, rows: list[Any]) -> None:
            for row in rows:
                self.items.append(row.arg)

    kept = Kept(operator(Appends), KEY, tmp_path)
    kept.step(rows_of([("a", "", n) for n in range(5)]))
    # Without the run a look-up would fail.
    (listed,) = kept.runs["machine.items"]
    (tmp_path / listed.run.name).rename(tmp_path / "away")
    assert isinstance(kept.operator, ProcessOperator)
    assert len(kept.step(rows_of([]))) == 0


def test_what_is_saved_is_loaded_before_the_next_rows(tmp_path: Path) -> None:
    class Counter(ab.Process):
        def __init__(self) -> None:
            self.counts: dict[str, int] = {}

        def load(self, key: Any, saved: bytes) -> None:
            self.counts[key.who] = int(saved)

        def save(self, key: Any) -> bytes | None:
            count = self.counts.get(key.who, 0)
            return str(count).encode() if count % 5 else None

        def on_rows(self, key: Any, rows: list[Any]) -> Any:
            self.counts[key.who] = self.counts.get(key.who, 0) + len(rows)
            return (key.who, str(self.counts[key.who]))

    kept = Kept(operator(Counter), KEY, tmp_path)
    shown = []
    for who in ["a", "b", "a", "a", "a", "a", "a"]:
        shown += kept.step(rows_of([(who, "", 0)])).values.column("shown").to_pylist()
    # At five it is forgotten, and counted anew.
    assert shown == ["1", "1", "2", "3", "4", "5", "1"]


def test_what_was_just_kept_has_names_as_what_was_kept_before(tmp_path: Path) -> None:
    class Named(ab.Process):
        value = ab.ValueState("low bigint, high bigint")
        items = ab.ListState("low bigint, high bigint")
        names = ab.MapState("k bigint", "low bigint, high bigint")

        def on_rows(self, key: Any, rows: list[Any]) -> Any:
            for row in rows:
                low = row.arg if self.value.get() is None else self.value.get().low
                self.value.set((low, row.arg))
                self.items.append((low, row.arg))
                self.names[row.arg] = (low, row.arg)
            items = [(item.low, item.high) for item in self.items]
            names = [(n, v.low, v.high) for n, v in sorted(self.names.items())]
            return (key.who, repr((self.value.get().high, items, names)))

    kept = Kept(operator(Named), KEY, tmp_path)
    shown = [
        kept.step(rows_of([("a", "", n) for n in numbers])).values.column("shown").to_pylist()
        for numbers in ([3, 4], [5])
    ]
    pairs = [(3, 3), (3, 4), (3, 5)]
    triples = [(high, low, high) for low, high in pairs]
    assert shown == [[repr((4, pairs[:2], triples[:2]))], [repr((5, pairs, triples))]]


def test_output_rows_come_where_the_first_row_of_their_key_stood(tmp_path: Path) -> None:
    class Twice(ab.Process):
        def on_rows(self, key: Any, rows: list[Any]) -> Any:
            return [(key.who, str(row.arg)) for row in rows]

    output = Kept(operator(Twice), KEY, tmp_path).step(
        rows_of([("b", "", 1), ("a", "", 2), ("b", "", 3)])
    )
    assert output.order is not None
    found = zip(
        output.values.column("shown").to_pylist(),
        *(column.tolist() for column in output.order.columns[2:]),
        strict=True,
    )
    assert sorted(found) == [("1", 0, 0), ("2", 1, 0), ("3", 0, 1)]


class Clumsy(Machine):
    """Does what its rows say and then, if one says so, fails: by raising, or by what it leaves."""

    def on_rows(self, key: Any, rows: list[Any]) -> Any:
        made = list(super().on_rows(key, [row for row in rows if row.op in OPS]))
        fate = {row.op for row in rows} - set(OPS)
        if "raise" in fate:
            (self.anything.get() or {"seen": []})["seen"].append(-1)
            raise ValueError("too late")
        if "unfit state" in fate:
            self.items.append(("x", 1))
        return [(1, 2, 3)] if "unfit output" in fate else made


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(commands, st.sampled_from(["", "raise", "unfit state", "unfit output"])),
        max_size=8,
    )
)
def test_a_call_that_fails_leaves_its_keys_state_as_it_was(
    steps: list[tuple[list[Command], str]],
) -> None:
    forever = float("inf")
    model = Model(forever, forever)
    with tempfile.TemporaryDirectory() as directory:
        kept = Kept(operator(Clumsy), KEY, Path(directory))
        for given_rows, fate in steps:
            failing = given_rows[0][0] if fate else None
            rows = [*given_rows, (failing, fate, 0)] if failing else given_rows
            dead: list[RowFailure] = []
            output = kept.step(rows_of(rows), dead)
            for who, op, arg in given_rows:
                if who != failing:
                    model.do(who, op, arg, 0)
            taken = {who for who, _, _ in given_rows} - {failing}
            shown = dict(zip(*output.values.to_pydict().values(), strict=True))
            assert shown == {who: model.shown(who) for who in taken}
            assert [letter.key.who for letter in dead] == [w for w, _, _ in rows if w == failing]
        entries = sum(len(items) for items in model.items.values())
        assert len(kept.scan("machine.items")) == entries
        assert len(kept.scan("machine.names")) == sum(map(len, model.names.values()))


class Raises(ab.Process):
    def on_rows(self, key: Any, rows: list[Any]) -> Any:
        raise ZeroDivisionError("at last")


class Unmakeable(ab.Process):
    def __init__(self) -> None:
        raise ValueError("no")

    def on_rows(self, key: Any, rows: list[Any]) -> Any:
        return None


class Unfit(ab.Process):
    def on_rows(self, key: Any, rows: list[Any]) -> Any:
        return [(1, 2, 3)]


class BadState(ab.Process):
    value = ab.ValueState("n bigint")

    def on_rows(self, key: Any, rows: list[Any]) -> Any:
        self.value.set("x")


@pytest.mark.parametrize(
    ("process", "kind", "text"),
    [
        (Raises, UserFunctionFailed, f"Raises.on_rows ({__file__}:"),
        (Raises, UserFunctionFailed, "raised ZeroDivisionError: at last"),
        (Unmakeable, UserFunctionFailed, f"Unmakeable.__init__ ({__file__}:"),
        (Unfit, OutputMismatch, "returned the row (1, 2, 3), which does not fit"),
        (BadState, OutputMismatch, "does not fit the schema of 'machine.value'"),
    ],
)
def test_what_is_wrong_is_said_with_operator_and_key(
    process: type[ab.Process], kind: type[AnabranchError], text: str, tmp_path: Path
) -> None:
    with pytest.raises(kind) as error:
        Kept(operator(process), KEY, tmp_path).step(rows_of([("a", "", 1)]))
    assert text in str(error.value)
    assert "operator machine" in str(error.value)


def test_an_end_that_no_key_would_come_to_is_a_problem_of_the_dataflow() -> None:
    class Ends(ab.Process):
        def on_rows(self, key: Any, rows: list[Any]) -> Any:
            return None

        def on_end(self, key: Any) -> Any:
            return None

    class Remembers(Ends):
        value = ab.ValueState("n bigint")

    with pytest.raises(InvalidDataflow, match="Ends has on_end but keeps no state"):
        operator(Ends)
    assert operator(Remembers).name == "machine"


def test_handles_work_only_in_a_task() -> None:
    with pytest.raises(RuntimeError, match="only in on_rows and on_end"):
        Machine().value.get()
