"""One aggregate as data: what was asked for, and what of each row it needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import pyarrow as pa

#: A constant in a call: a percentage or several, an accuracy, a flag, a delimiter.
Parameter: TypeAlias = float | bool | str | tuple[float, ...]
Types: TypeAlias = tuple[pa.DataType, ...]


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """One aggregate function, the SQL expressions it is over, its constants and its filter.

    ``function`` is the name of the function's rule: aliases are resolved, and ``f(distinct x)`` is
    a function of its own (``count_distinct``). ``arguments`` is empty for ``count(*)``.
    """

    function: str
    arguments: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    condition: str | None = None

    @property
    def label(self) -> str:
        """The function and its constants: what the kept state means."""
        if not self.parameters:
            return self.function
        return f"{self.function}({', '.join(map(str, self.parameters))})"


class Carried(NamedTuple):
    """A column that travels to the operator: its SQL over the input's columns, and its type."""

    sql: str
    type: pa.DataType
