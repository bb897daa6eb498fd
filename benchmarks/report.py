"""A run as Markdown. Pure: everything it says is in the results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from benchmarks.core_speed import told
from benchmarks.measure import Fact, part_medians
from benchmarks.nexmark.report import nexmark
from benchmarks.remarks import REMARKS
from benchmarks.rescale_report import rescaling
from benchmarks.results import Result, Results
from benchmarks.step_parts import DRIVER, TASK
from benchmarks.targets import TARGETS, Target
from benchmarks.text import count, milliseconds, per_second, ratio_text, table

LABELS = {
    "ours": "**Anabranch**",
    "ours-double": "Anabranch, sum of `double` (rows are put in order)",
    "ours-map": "**Anabranch** `stateful_map`",
    "hdfs": "Structured Streaming, native, HDFS-backed",
    "hdfs-parquet": "native, HDFS-backed, writing Parquet by `foreachBatch`",
    "rocksdb": "Structured Streaming, native, RocksDB",
    "rocksdb-tuned": "native, RocksDB, changelog checkpoints on, row tracking off",
    "transform-row": "`transformWithState` (Row)",
    "transform-pandas": "`transformWithStateInPandas`",
    "bytewax-1s": "Bytewax, recovery on, snapshot every second",
    "bytewax-10s": "Bytewax, recovery on, snapshot every 10 s",
    "pathway": "Pathway, nothing kept",
    "pathway-log": "Pathway, log of its input kept",
}

WORKLOADS = {
    "aggregate-100k": "`aggregate`: count and sum per key, 100 k rows a batch over 1 M keys",
    "aggregate-1m": "`aggregate`: count and sum per key, 1 M rows a batch over 1 M keys",
    "map-100k": "`stateful_map`: a running sum in Python, 100 k rows a batch over 1 M keys",
    "map-1m": "`stateful_map`: a running sum in Python, 1 M rows a batch over 1 M keys",
    "map-1m-10k-keys": "`stateful_map`: a running sum in Python, 1 M rows over 10 k keys",
}

BORROWED = {"map-100k": ("aggregate-100k/hdfs",), "map-1m": ("aggregate-1m/hdfs",)}
"""Results of other workloads, over the same data, that belong beside these."""

PEERS_BESIDE = ("aggregate-100k/ours", "map-100k/ours")

METHOD = """\
All systems read the same Parquet files (two a batch) through their own file source, one after the
other, each in a new process. The first batches are not counted. Rates and ratios are those of the
median batch, with the slowest and the fastest beside it; "whole run" is all counted rows over all
of the time up to the end, closing included.

- **Anabranch**: 2 workers on `local[2]`. Plan and commit are journalled, runs and staged output
  synced to disk in every step, and the output is published as Parquet. A step's time is that from
  the end of the step before to its own end.
- **Structured Streaming**: `local[2]`, update mode, 2 shuffle partitions like our 2 workers (the
  default is 200), checkpoints on the same disk, result to the `noop` sink: writing nothing favours
  it. (Its file sink has no update mode; a row shows it with Parquet by `foreachBatch`.) State
  stores as they are shipped, and RocksDB also tuned. A batch's time is its `triggerExecution`.
- Both have a JVM of 4 GB.
- **transformWithState** is cut by time: it gets through fewer batches, and of these the first
  third is its warm-up. It holds fewer keys than we do by then, which favours it.
"""


def render(results: Results, soak: Mapping[str, Fact] | None = None) -> str:
    """The whole document."""
    sections = [
        "# Benchmarks",
        "Written by `make bench`; do not edit. Ratios within one run on one machine count, not "
        "the numbers themselves.",
        _quick_note(results),
        _machine(results),
        METHOD.rstrip(),
        *_targets(results),
        *_throughput(results),
        *_latency(results),
        *_held(results),
        *rescaling(results),
        *nexmark(results),
        *_profiles(results),
        *_peers(results),
        *_tiny_steps(soak),
        *_missing(results),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _quick_note(results: Results) -> str:
    if results.size == "full":
        return ""
    return (
        "**These are tiny sizes, which show that everything runs and nothing else**: rows and "
        "keys are far fewer than the headings say."
    )


def _machine(results: Results) -> str:
    if not results.results:
        return "Nothing has been measured yet."
    machine = "; ".join(f"{what}: {value}" for what, value in results.machine.items()) + "."
    speeds = told([(each.name, each.speed) for each in results.results])
    return f"{machine}\n\n{speeds}" if speeds else machine


def _targets(results: Results) -> Iterable[str]:
    found = [(target, target.ratio(results)) for target in TARGETS]
    rows = [
        (
            target.what,
            target.reference,
            f"{'≥' if target.at_least else '≤'} {ratio_text(target.bound)}",
            "not measured" if ratio is None else ratio_text(ratio),
            "" if ratio is None else ("✓" if target.kept(ratio) else "✗ missed"),
        )
        for target, ratio in found
    ]
    yield "## Targets"
    yield table(("what", "beside", "target", "measured", ""), rows, right=(2, 3))
    missed = [each for each, ratio in found if ratio is not None and not each.kept(ratio)]
    if missed:
        yield "Where the time goes in what was missed:"
        yield "\n".join(f"- {t.what}, beside {t.reference}: {_why(t, results)}" for t in missed)


def _why(target: Target, results: Results) -> str:
    if target.name in REMARKS:
        return REMARKS[target.name]
    profiled = results.find(target.profile)
    if profiled is None or not profiled.batches():
        return "no profile was taken in this run."
    parts = part_medians(profiled.batches())
    whole = sum(parts[name] for name, _ in DRIVER)
    named = {**dict(DRIVER), **{n: f"tasks: {what}" for n, what in TASK}}
    leaves = [name for name in parts if name in named and name not in ("tasks", "merge")]
    largest = sorted(leaves, key=lambda name: -parts[name])[:4]
    told = "; ".join(f"{named[n]} {100 * parts[n] / whole:.0f} %" for n in largest)
    return f"of the profiled step, {told}."


def _throughput(results: Results) -> Iterable[str]:
    for workload, title in WORKLOADS.items():
        found = list(results.workload(workload))
        borrowed = [results.find(name) for name in BORROWED.get(workload, ())]
        found += [each for each in borrowed if each is not None and found]
        if found:
            yield f"## {title}"
            yield _rates(found, results.find(f"{workload}/ours"))


def _rates(found: Sequence[Result], ours: Result | None) -> str:
    mine = ours.rates() if ours is not None else None
    rows = []
    for each in found:
        rate, whole = each.rates(), each.overall()
        if rate is None or whole is None:
            rows.append((_label(each), each.failure, "", "", "", ""))
            continue
        beside = "" if mine is None or each is ours else ratio_text(mine.median / rate.median)
        rows.append(
            (
                _label(each),
                per_second(rate.median),
                f"{per_second(rate.low)}–{per_second(rate.high)}",
                per_second(whole),
                f"{rate.count}{_cut(each)}",
                beside,
            )
        )
    heads = ("", "rows/s, median", "min–max", "whole run", "batches", "Anabranch is")
    return table(heads, rows, right=(1, 2, 3, 4, 5))


def _cut(result: Result) -> str:
    if result.outcome is None or not result.outcome.cut:
        return ""
    unfinished = " (not one was done: less than this)"
    return unfinished if "unfinished" in result.outcome.info else " (cut by time)"


def _label(result: Result) -> str:
    return LABELS.get(result.subject, result.subject)


def _latency(results: Results) -> Iterable[str]:
    found = results.workload("latency")
    if not found:
        return
    rows = []
    for each in found:
        took = each.times()
        if took is None:
            rows.append((_label(each), each.failure, "", "", ""))
            continue
        published = [b.parts["until published"] for b in each.batches() if "run" in b.parts]
        middle = milliseconds(sorted(published)[len(published) // 2]) if published else ""
        spread = f"{milliseconds(took.low)}–{milliseconds(took.high)}"
        rows.append(
            (_label(each), milliseconds(took.median), milliseconds(took.p95), spread, middle)
        )
    yield "## Latency of small batches: 1,000 rows each, over 1 M keys"
    heads = ("", "ms, median", "95 %", "min–max", "until published")
    yield table(heads, rows, right=(1, 2, 3, 4))


def _held(results: Results) -> Iterable[str]:
    result = results.find("held/ours")
    if result is None:
        return
    yield "## 10 M keys held against 100 k"
    if result.outcome is None:
        yield result.failure
        return
    info = result.outcome.info
    yield (
        f"Batches of 100 k rows, each changing 100 k different keys, {info['steps']:.0f} steps. "
        f"No file of the loaded base ({info['base files']:.0f} files) was left in the run list "
        f"after: {info['base merged after']}. Look-up, write and merge are means of the two "
        "workers; merging is without writing the result."
    )
    heads = ("ms", "10 M held", "100 k held", "ratio")
    rows = []
    for name, what in _HELD_NAMES.items():
        many, few = float(info[f"many: {name}"]), float(info[f"few: {name}"])
        ratio = ratio_text(many / few) if few else ""
        rows.append((what, milliseconds(many), milliseconds(few), ratio))
    yield table(heads, rows, right=(1, 2, 3))


_HELD_NAMES = {
    "mean": "step, mean (merges included)",
    "median": "step, median",
    "low": "step, shortest",
    "high": "step, longest",
    "lookup": "look-up, median",
    "write": "write and merge, median",
    "merge, longest": "merge, longest in one step",
    "merge, all steps": "merge, all steps together",
}


def _profiles(results: Results) -> Iterable[str]:
    found = [each for each in results.workload("profile") if each.batches()]
    if not found:
        return
    yield "## Where the time of a step goes"
    yield (
        "Medians over the counted steps, with Spark's event log on. The upper rows are one after "
        "the other and make up the step; the lower ones are inside the region tasks, as means of "
        "the two workers, which run beside each other."
    )
    parts = [part_medians(each.batches()) for each in found]
    wholes = [sum(each[name] for name, _ in DRIVER) for each in parts]
    rows = [
        (what, *(_share(p.get(n, 0.0), w) for p, w in zip(parts, wholes, strict=True)))
        for n, what in (*DRIVER, *((n, f"– {what}") for n, what in TASK))
    ]
    rows.append(("**all**", *(f"{milliseconds(whole)} ms" for whole in wholes)))
    heads = ("", *(f"{each.subject.replace('-', ', ')} rows" for each in found))
    yield table(heads, rows, right=tuple(range(1, len(heads))))


def _share(seconds: float, whole: float) -> str:
    return f"{milliseconds(seconds)} ms, {100 * seconds / whole:.0f} %"


def _peers(results: Results) -> Iterable[str]:
    found = list(results.workload("peers"))
    if not found:
        return
    ours = [each for each in map(results.find, PEERS_BESIDE) if each is not None]
    rows = []
    for each in (*ours, *found):
        whole, rate = each.overall(), each.rates()
        if whole is None or rate is None:
            rows.append((_label(each), each.failure, "", ""))
            continue
        label = f"{_label(each)} `{_OPERATORS[each.name]}`" if each in ours else _label(each)
        spread = f"{per_second(rate.low)}–{per_second(rate.high)}"
        rows.append((label, per_second(whole), spread, _cut(each).strip()))
    yield "## Bytewax and Pathway"
    yield (
        "Count and sum per key over the same 100 k-row files, two processes (Bytewax) or two "
        "threads (Pathway), output counted and thrown away, Anabranch beside them writing "
        "Parquet. They have no batches: min–max is over stretches of a second or more. Bytewax "
        "keeps snapshots of its state. Pathway reads the rows from CSV, as it reads no Parquet; "
        "snapshots of its state need a licence key, so it is shown with nothing kept and with its "
        "log of the input, from which it computes everything again."
    )
    yield table(("", "rows/s, whole run", "min–max", ""), rows, right=(1, 2))


_OPERATORS = {"aggregate-100k/ours": "aggregate", "map-100k/ours": "stateful_map"}


def _tiny_steps(soak: Mapping[str, Fact] | None) -> Iterable[str]:
    yield "## Many tiny steps"
    if not soak:
        yield (
            "20,000 steps of a few rows are part of `make soak`, which asserts that memory and "
            "local bytes stay flat; its last numbers appear here."
        )
        return
    yield (
        f"{count(float(soak['steps']))} steps of a few rows in `make soak`, which asserts that "
        f"memory and local bytes stay flat ({soak['when']}):"
    )
    names = [name.removeprefix("early: ") for name in soak if name.startswith("early: ")]
    rows = []
    for name in names:
        early, late = float(soak[f"early: {name}"]), float(soak[f"late: {name}"])
        ratio = ratio_text(late / early) if early else ""
        rows.append((name, f"{early / 2**20:.1f}", f"{late / 2**20:.1f}", ratio))
    yield table(("MiB, most in a window", "after a tenth", "at the end", "ratio"), rows, (1, 2, 3))


def _missing(results: Results) -> Iterable[str]:
    lost = [each for each in results.results if each.failure]
    if lost:
        yield "## Left out"
        yield "\n".join(f"- {each.name}: {each.failure}" for each in lost)
