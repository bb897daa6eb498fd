"""Sources whose columns are known only once Spark has made them."""

from __future__ import annotations

import copy
from typing import ClassVar, Self

import pyarrow as pa

from anabranch.errors import InvalidSchema


class LaterSchema:
    """A source with a schema that may come later: `given` is None until then.

    A class that derives from it is a frozen dataclass with that field, and says in `unknown` what
    is not known before what.
    """

    __slots__ = ()
    unknown: ClassVar[str]
    given: pa.Schema | None

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows, once they are known."""
        if self.given is None:
            raise InvalidSchema(self.unknown, do="Give it one: schema='k string, v bigint'.")
        return self.given

    def with_schema(self, schema: pa.Schema) -> Self:
        """The same source with a schema."""
        known = copy.copy(self)
        object.__setattr__(known, "given", schema)
        return known
