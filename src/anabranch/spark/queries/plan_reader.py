"""Read from Catalyst's plans what a query consists of: the only place that inspects them.

The parser's plan is read before any name is resolved, so that a query that names a file is refused
before Spark touches the file. The analyzer's plan shows what the names resolved to.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from anabranch.dataflow.sql.query_rules import Leaf, Name, Parsed, has_several_statements
from anabranch.errors import InvalidQuery, QueryError, SeveralStatements
from anabranch.spark.error_text import sentence
from anabranch.spark.failure import quietly
from anabranch.spark.jvm import TREE_PATTERN, class_name, java_class, scala_items

_CATALYST = "org.apache.spark.sql.catalyst"
_SINGLE_QUOTES = "Quote strings with single quotes, names with double quotes or backquotes."


class PlanReader:
    """Asks one session's parser and analyzer. It starts no job."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        jvm: Any = spark._jvm
        self._parser = spark._jsparkSession.sessionState().sqlParser()
        self._identifier = java_class(jvm, f"{_CATALYST}.FunctionIdentifier")
        self._built_in = java_class(jvm, f"{_CATALYST}.analysis.FunctionRegistry").builtin()
        patterns = java_class(jvm, TREE_PATTERN)
        self._calls = [patterns.UNRESOLVED_FUNCTION(), patterns.GENERATOR()]
        self._named = [patterns.UNRESOLVED_IDENTIFIER()]
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
        return walk.parsed(class_name(plan))

    def analyze(self, text: str) -> DataFrame:
        """Resolve the names of a query; ``InvalidQuery`` if one does not exist."""
        try:
            with quietly():
                return self._spark.sql(text)
        except (PySparkException, Py4JJavaError) as error:
            raise InvalidQuery(
                f"Spark cannot analyze the query: {sentence(error)}", do=_SINGLE_QUOTES
            ) from error

    def leaves(self, df: DataFrame) -> Iterator[Leaf]:
        """Everything that a query reads, including its subqueries."""
        yield from _leaves(df._jdf.queryExecution().analyzed())

    def group_of(self, function: str) -> str | None:
        """Spark's group of a built-in function; None for others."""
        if function not in self._groups:
            found = self._built_in.lookupFunction(self._identifier(function))
            self._groups[function] = found.get().getGroup() if found.isDefined() else None
        return self._groups[function]


class _Walk:
    """Traverses a plan of the parser and collects what it uses."""

    def __init__(self, calls: list[Any], named: list[Any]) -> None:
        self._calls = calls
        self._named = named
        self._nodes: set[str] = set()
        self._relations: set[Name] = set()
        self._common_tables: set[str] = set()
        self._functions: set[Name] = set()
        self._table_functions: set[Name] = set()
        self._named_by_expression = False

    def parsed(self, root: str) -> Parsed:
        """The result."""
        return Parsed(
            root,
            frozenset(self._nodes),
            frozenset(self._relations),
            frozenset(self._common_tables),
            frozenset(self._functions),
            frozenset(self._table_functions),
            self._named_by_expression,
        )

    def visit(self, plan: Any) -> None:  # noqa: ANN401  (objects of the JVM have no type here)
        """Collect a node, what its expressions call, and all plans below and inside it."""
        kind = class_name(plan)
        self._nodes.add(kind)
        match kind:
            case "UnresolvedRelation":
                self._relations.add(_name(plan.multipartIdentifier()))
            case "UnresolvedTableValuedFunction":
                self._table_functions.add(_name(plan.name()))
            case "UnresolvedWith":
                for table in scala_items(plan.cteRelations()):
                    self._common_tables.add(table._1())
                    self.visit(table._2())
            case _:
                pass
        for expression in scala_items(plan.expressions()):
            self._expression(expression)
        for part in (*scala_items(plan.children()), *scala_items(plan.subqueries())):
            self.visit(part)

    def _expression(self, expression: Any) -> None:  # noqa: ANN401
        if any(expression.containsPattern(pattern) for pattern in self._named):
            self._named_by_expression = True
        if not any(expression.containsPattern(pattern) for pattern in self._calls):
            return
        match class_name(expression):
            case "UnresolvedFunction":
                self._functions.add(_name(expression.nameParts()))
            case "UnresolvedGenerator":
                name = expression.name()
                before = [p.get() for p in (name.catalog(), name.database()) if p.isDefined()]
                self._functions.add((*before, name.funcName()))
            case _:
                pass
        for part in scala_items(expression.children()):
            self._expression(part)


def _leaves(plan: Any) -> Iterator[Leaf]:  # noqa: ANN401
    kind = class_name(plan)
    if kind == "View":
        name = plan.desc().identifier()
        # Below our own views everything is ours; other views are not inspected.
        yield Leaf(kind, name.table() if plan.isTempView() else name.unquotedString())
        return
    parts = [*scala_items(plan.children()), *scala_items(plan.subqueries())]
    if kind == "Range":
        yield Leaf(kind, rows=int(str(plan.numElements())))
    elif not plan.children().nonEmpty():
        yield Leaf(kind)
    for part in parts:
        yield from _leaves(part)


def _name(parts: Any) -> Name:  # noqa: ANN401
    return tuple(str(part) for part in scala_items(parts))


def _parse_error(text: str, error: PySparkException | Py4JJavaError) -> QueryError:
    if has_several_statements(text):
        return SeveralStatements(
            "The text has more than one statement", do="Run them one after the other."
        )
    return InvalidQuery(f"Spark cannot read the query: {sentence(error)}", do=_SINGLE_QUOTES)
