"""One aggregate as data: the call, and the columns it needs of each row."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import msgspec
import pyarrow as pa

#: A constant in a call: percentages, an accuracy, a flag or a delimiter.
Parameter: TypeAlias = float | bool | str | tuple[float, ...]
Types: TypeAlias = tuple[pa.DataType, ...]


class AggregateCall(msgspec.Struct, frozen=True):
    """A call of an aggregate function: its SQL arguments, constants and filter.

    ``function`` is the name of a rule: aliases are resolved, and ``f(distinct x)`` is a function of
    its own (``count_distinct``). ``arguments`` is empty for ``count(*)``.
    """

    function: str
    arguments: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    condition: str | None = None

    @property
    def label(self) -> str:
        """The function and its constants, which give the stored state its meaning."""
        if not self.parameters:
            return self.function
        return f"{self.function}({', '.join(map(str, self.parameters))})"


class Carried(NamedTuple):
    """A column that rows carry to the operator: SQL over the input's columns, and its type."""

    sql: str
    type: pa.DataType
