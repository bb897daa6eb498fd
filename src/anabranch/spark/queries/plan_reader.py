"""Read from Catalyst's plans what a query consists of: the only place that inspects them.

The parser's plan is read before any name is resolved, so that a query that names a file is refused
before Spark touches the file. The analyzer's plan shows what the names resolved to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from py4j.java_gateway import get_field
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from anabranch.dataflow.sql.built_size import BUILDERS, Constant, Expression
from anabranch.dataflow.sql.query_rules import (
    Leaf,
    Name,
    Parsed,
    has_several_statements,
    names_by_expression,
)
from anabranch.errors import InvalidQuery, QueryError, SeveralStatements
from anabranch.spark.failure import quietly, sentence
from anabranch.spark.jvm import TREE_PATTERN, Java, class_name, java_class, plans_below, scala_items

_INTERVAL = ("months", "days", "microseconds")
_MONTH_DAYS = 28
_DAY_MICROSECONDS = 86_400_000_000
_CATALYST = "org.apache.spark.sql.catalyst"
_SINGLE_QUOTES = "Quote strings with single quotes, names with double quotes or backquotes."


class PlanReader:
    """Asks one session's parser and analyzer. It starts no job."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        jvm: Java = spark._jvm
        self._parser = spark._jsparkSession.sessionState().sqlParser()
        self._identifier = java_class(jvm, f"{_CATALYST}.FunctionIdentifier")
        self._built_in = java_class(jvm, f"{_CATALYST}.analysis.FunctionRegistry").builtin()
        patterns = java_class(jvm, TREE_PATTERN)
        self._calls = [patterns.UNRESOLVED_FUNCTION(), patterns.GENERATOR()]
        self._named = patterns.UNRESOLVED_IDENTIFIER()
        self._current = patterns.CURRENT_LIKE()
        self._groups: dict[str, str | None] = {}

    def parse(self, text: str) -> Parsed:
        """Parse a query; ``InvalidQuery`` or ``SeveralStatements`` if that fails."""
        try:
            with quietly():
                plan = self._parser.parsePlan(text)
        except (PySparkException, Py4JJavaError) as error:
            raise _parse_error(text, error) from error
        walk = _Walk(self._calls, self._named)
        walk.visit(plan)
        return Parsed(
            class_name(plan),
            frozenset(walk.nodes),
            frozenset(walk.relations),
            frozenset(walk.common_tables),
            frozenset(walk.functions),
            frozenset(walk.table_functions),
            walk.named_by_expression or names_by_expression(text),
        )

    def analyze(self, text: str) -> DataFrame:
        """Resolve the names of a query; ``InvalidQuery`` if one does not exist."""
        try:
            with quietly():
                return self._spark.sql(text)
        except (PySparkException, Py4JJavaError) as error:
            raise InvalidQuery(
                f"Spark cannot analyze the query: {sentence(error)}", do=_SINGLE_QUOTES
            ) from error

    def current_names(self, df: DataFrame) -> set[str]:
        """The functions of an analyzed query that tell something about now and here."""
        return {
            str(each.prettyName())
            for expression in _expressions(df._jdf.queryExecution().analyzed())
            if expression.containsPattern(self._current)
            for each in _parts(expression)
            if not each.children().nonEmpty() and each.containsPattern(self._current)
        }

    def group_of(self, function: str) -> str | None:
        """Spark's group of a built-in function; None for others."""
        if function not in self._groups:
            found = self._built_in.lookupFunction(self._identifier(function))
            self._groups[function] = found.get().getGroup() if found.isDefined() else None
        return self._groups[function]


@dataclass
class _Walk:
    """Traverses a plan of the parser and collects what it uses."""

    calls: list[Java]
    named: Java
    nodes: set[str] = field(default_factory=set)
    relations: set[Name] = field(default_factory=set)
    common_tables: set[str] = field(default_factory=set)
    functions: set[Name] = field(default_factory=set)
    table_functions: set[Name] = field(default_factory=set)
    named_by_expression: bool = False

    def visit(self, plan: Java) -> None:
        """Collect a node, what its expressions call, and all plans below and inside it."""
        kind = class_name(plan)
        self.nodes.add(kind)
        match kind:
            case "UnresolvedRelation":
                self.relations.add(_name(plan.multipartIdentifier()))
            case "UnresolvedTableValuedFunction":
                self.table_functions.add(_name(plan.name()))
            case "UnresolvedWith":
                for table in scala_items(plan.cteRelations()):
                    self.common_tables.add(table._1())
                    self.visit(table._2())
        for expression in scala_items(plan.expressions()):
            self._expression(expression)
        for part in plans_below(plan):
            self.visit(part)

    def _expression(self, expression: Java) -> None:
        if expression.containsPattern(self.named):
            self.named_by_expression = True
        if not any(expression.containsPattern(pattern) for pattern in self.calls):
            return
        match class_name(expression):
            case "UnresolvedFunction":
                self.functions.add(_name(expression.nameParts()))
            case "UnresolvedGenerator":
                name = expression.name()
                before = [p.get() for p in (name.catalog(), name.database()) if p.isDefined()]
                self.functions.add((*before, name.funcName()))
        for part in scala_items(expression.children()):
            self._expression(part)


def built_by(df: DataFrame) -> Iterator[Expression]:
    """The expressions of an analyzed query, with the constants that tell what they build."""
    return map(_expression, _expressions(df._jdf.queryExecution().analyzed()))


def _expressions(plan: Java) -> Iterator[Java]:
    yield from scala_items(plan.expressions())
    # Below our own views everything is ours.
    for part in plans_below(plan) if class_name(plan) != "View" else ():
        yield from _expressions(part)


def _parts(expression: Java) -> Iterator[Java]:
    yield expression
    for part in scala_items(expression.children()):
        yield from _parts(part)


def _expression(java: Java) -> Expression:
    name = str(java.prettyName())
    arguments = tuple(map(_expression, scala_items(java.children())))
    # What builds something is never computed here, only what it is given: ``1024 * 1024``.
    computable = name not in BUILDERS and all(a.value is not None for a in arguments)
    value = _constant(java) if computable and java.foldable() else None
    return Expression(name, arguments, value)


def _constant(java: Java) -> Constant:
    """The value of a constant expression; None if it has none that tells a size."""
    try:
        kind, value = str(java.dataType().catalogString()), java.eval(None)
        if kind.startswith(("interval", "timestamp")):
            return _days(kind, value)
        if kind == "string":
            return str(value.toString())
        number = value.toDouble() if kind.startswith("decimal") else value
        return number if isinstance(number, int | float) else None
    except (Py4JError, AttributeError, TypeError):
        return None


def _days(kind: str, value: Java) -> float:
    if kind == "interval":
        months, days, rest = (get_field(value, name) for name in _INTERVAL)
        return float(_MONTH_DAYS * months + days + rest / _DAY_MICROSECONDS)
    if "month" in kind or "year" in kind:
        return float(value * _MONTH_DAYS)
    return float(value / _DAY_MICROSECONDS)


def leaves_of(plan: Java) -> Iterator[Leaf]:
    """Everything that an analyzed query reads, including its subqueries."""
    kind = class_name(plan)
    if kind == "View":
        name = plan.desc().identifier()
        # Below our own views everything is ours; other views are not inspected.
        yield Leaf(kind, name.table() if plan.isTempView() else name.unquotedString())
        return
    if kind == "Range":
        yield Leaf(kind, rows=int(str(plan.numElements())))
    elif not plan.children().nonEmpty():
        yield Leaf(kind)
    for part in plans_below(plan):
        yield from leaves_of(part)


def _name(parts: Java) -> Name:
    return tuple(str(part) for part in scala_items(parts))


def _parse_error(text: str, error: PySparkException | Py4JJavaError) -> QueryError:
    if has_several_statements(text):
        return SeveralStatements(
            "The text has more than one statement", do="Run them one after the other."
        )
    return InvalidQuery(f"Spark cannot read the query: {sentence(error)}", do=_SINGLE_QUOTES)
