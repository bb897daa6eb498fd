"""The naming rules for operators, whose names become file names, and for columns."""

from __future__ import annotations

import re
from collections.abc import Sequence

from anabranch.dataflow.findings import Finding, from_error
from anabranch.dataflow.types.row_type import Column, RowType, same_name, unknown
from anabranch.dataflow.types.schema import type_to_ddl
from anabranch.errors import InvalidSchema

#: The prefix of Anabranch's own columns, which travel beside the user's.
RESERVED_PREFIX = "_ab_"
#: Names the input row of each output row, for functions over batches.
ORD = "_ord"
#: The event time of each row, for the user's Spark code.
TIME = "_time"
#: Name the key of each row, and the keys to forget, for stateful functions over batches.
KEY = "_key"
FORGET = "_forget"
#: Numbers the windows in a table of their rows, for functions over windows.
WINDOW = "_window"
#: The frontier that a late row was late for, in a stream of late rows.
FRONTIER = "frontier"
#: A file name also holds step, worker and attempt, and must stay below 255 characters.
LONGEST_NAME = 100

_ALLOWED = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def name_finding(name: str) -> Finding | None:
    """What is wrong with the name of a dataflow or an operator; None if it is fine."""
    if not name:
        return Finding("it has no name", "Give it a unique name: state and metrics use it.")
    if not _ALLOWED.fullmatch(name):
        return Finding(
            f"the name {name!r} cannot be a file name",
            "Use only letters, digits, '_', '-' and '.', and start with a letter, digit or '_'.",
        )
    if len(name) > LONGEST_NAME:
        return Finding(
            f"its name has {len(name)} characters", f"Use at most {LONGEST_NAME} characters."
        )
    return None


def column_findings(columns: Sequence[Column], what: str = "column") -> list[Finding]:
    """What is wrong with the columns an operator introduces: reserved names, unsupported types."""
    findings = []
    for column in columns:
        if not column.name:
            findings.append(Finding(f"a {what} has no name", "Give it one."))
        elif column.name.lower().startswith(RESERVED_PREFIX):
            findings.append(
                Finding(
                    f'{what} "{column.name}" starts with {RESERVED_PREFIX}, which is reserved',
                    "Rename it.",
                )
            )
        findings += _type_findings(column, what)
    return findings


def _type_findings(column: Column, what: str) -> list[Finding]:
    if column.type is None:
        return []
    try:
        type_to_ddl(column.type)
    except InvalidSchema as error:
        return [from_error(error, f'{what} "{column.name}": ', "Cast it to another type.")]
    return []


def supported_row(row: RowType) -> RowType:
    """The row with unsupported types replaced by unknown ones."""
    columns = (unknown(c.name) if _type_findings(c, "") else c for c in row.columns)
    return RowType(tuple(columns), open=row.open)


def distinct_row(columns: Sequence[Column], *, open: bool = False) -> tuple[RowType, list[Finding]]:
    """The row of these columns, and a finding for each duplicate name.

    A reference to a duplicate name is ambiguous: one column stays, with an unknown type.
    """
    kept: list[Column] = []
    findings = []
    for column in columns:
        place = next(
            (i for i, other in enumerate(kept) if same_name(other.name, column.name)), None
        )
        if place is None:
            kept.append(column)
        else:
            findings.append(_clash(kept[place].name, column.name))
            kept[place] = unknown(kept[place].name)
    return RowType(tuple(kept), open=open), findings


def _clash(earlier: str, later: str) -> Finding:
    if earlier == later:
        return Finding(f'there are two columns "{later}"', "Rename or drop one of them.")
    return Finding(
        f'columns "{earlier}" and "{later}" differ only in case, which Spark ignores',
        "Rename or drop one of them.",
    )
