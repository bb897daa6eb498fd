"""Sources that only Spark can open: their columns may be known only once it has made them."""

from __future__ import annotations

import copy
from typing import ClassVar, Self

import pyarrow as pa

from anabranch.errors import InvalidSchema, SourceUnavailable
from anabranch.protocol.sources import Enumerator, SourceLog


class OpenedBySpark:
    """A source whose schema may come later: `given` is None until then.

    A class that derives from it is a frozen dataclass with that field, and says what it is.
    """

    __slots__ = ()
    what: ClassVar[str]
    given: pa.Schema | None

    @property
    def schema_is_known(self) -> bool:
        """Whether it has a schema yet."""
        return self.given is not None

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows, once they are known."""
        if self.given is None:
            raise InvalidSchema(
                f"the schema of {self.what} is not known before Spark has made it",
                do="Give it one: schema='k string, v bigint'.",
            )
        return self.given

    def with_schema(self, schema: pa.Schema) -> Self:
        """The same source with a schema."""
        known = copy.copy(self)
        object.__setattr__(known, "given", schema)
        return known

    def open(self, position: bytes | None, log: SourceLog) -> Enumerator:
        """Refuse."""
        raise SourceUnavailable(
            f"{self.what} can be opened by Spark alone", do="Run it with ab.run."
        )
