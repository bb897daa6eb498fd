"""The tree of all errors that Anabranch raises.

    AnabranchError
    ├── BuildError                the user's dataflow cannot run
    │   ├── InvalidDataflow       dataflow.invalid
    │   ├── InvalidAggregate      aggregate.invalid
    │   ├── InvalidSchema         schema.invalid
    │   └── FlowNotFound          build.flow_not_found
    ├── DirectoryError            the pipeline's directory does not match
    │   ├── OtherDataflow         directory.other_dataflow
    │   ├── ChangedDataflow       directory.changed_dataflow
    │   ├── DirectoryInUse        directory.in_use
    │   ├── FutureFormat          directory.future_format
    │   ├── PastFormat            directory.past_format
    │   └── NoPipeline            directory.no_pipeline
    ├── StoreError                files of the pipeline's store
    │   ├── DiskFull              store.disk_full
    │   ├── StoreUnavailable      store.unavailable
    │   ├── NameTaken             store.name_taken
    │   ├── MissingRun            store.missing_run
    │   ├── CorruptRun            store.corrupt_run
    │   ├── CorruptStaged         store.corrupt_staged
    │   ├── MissingEntry          store.missing_entry
    │   └── CorruptEntry          store.corrupt_entry
    ├── SourceError               input
    │   ├── SourceUnavailable     source.unavailable
    │   ├── FileChanged           source.file_changed
    │   ├── FileGone              source.file_gone
    │   ├── UnreadableFile        source.unreadable_file
    │   ├── StreamFailed          source.stream_failed
    │   └── ReadFailed            source.read_failed
    ├── SinkError                 output
    │   ├── TargetTaken           sink.target_taken
    │   ├── PublishFailed         sink.publish_failed
    │   └── CallbackFailed        sink.callback
    ├── StepError                 a step that could not be committed
    │   ├── UserFunctionFailed    step.user_function
    │   ├── OutputMismatch        step.output_mismatch
    │   ├── AttemptsDisagree      step.attempts_disagree
    │   ├── Overflow              step.overflow
    │   ├── StepTimeout           step.timeout
    │   ├── StepDiverged          step.diverged
    │   ├── StepCancelled         step.cancelled
    │   └── StepFailed            step.failed
    ├── QueryError                state that could not be read or queried
    │   ├── InvalidQuery          query.invalid
    │   ├── SeveralStatements     query.several_statements
    │   ├── NotAQuery             query.not_a_query
    │   ├── ForbiddenRelation     query.forbidden_relation
    │   ├── ForbiddenFunction     query.forbidden_function
    │   ├── UnknownOperator       query.unknown_operator
    │   ├── UnknownStep           query.unknown_step
    │   ├── SnapshotExpired       query.snapshot_expired
    │   ├── QueryTimeout          query.timeout
    │   ├── QueryTooLarge         query.too_large
    │   └── QueryFailed           query.failed
    ├── RequestError              an HTTP call that was not carried out
    │   ├── InvalidRequest        request.invalid
    │   ├── UnknownPath           request.unknown
    │   ├── Unauthorized          request.unauthorized
    │   ├── Forbidden             request.forbidden
    │   ├── RequestTooLarge       request.too_large
    │   ├── RequestTooSlow        request.too_slow
    │   └── TooManyRequests       request.too_many
    ├── OperationError            an operation that a pipeline did not carry out
    │   └── OperationRefused      operation.refused
    ├── CoordinatorError          the coordinator as its clients see it
    │   ├── CoordinatorUnreachable  coordinator.unreachable
    │   ├── CoordinatorStarting   coordinator.starting
    │   ├── TokenMissing          coordinator.token_missing
    │   ├── TokenInvalid          coordinator.token_invalid
    │   ├── AddressTaken          coordinator.address_taken
    │   ├── DeadlinePassed        coordinator.deadline
    │   └── Fenced                coordinator.fenced
    ├── NodeError                 the process that runs steps
    │   └── NodeUnreachable       node.unreachable
    └── SparkUnavailable          spark.unavailable

Catch by branch. Each class has a stable ``code``, which logs, the CLI and HTTP print too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


class AnabranchError(Exception):
    """The root of the tree: what happened, where, and what to do about it.

    The message is one readable paragraph; the parts are available as attributes.
    """

    code: ClassVar[str] = "anabranch"

    def __init__(self, what: str, *, where: str | None = None, do: str | None = None) -> None:
        """Keep the parts; ``__str__`` joins them."""
        super().__init__(what)
        self.what = what
        self.where = where
        self.do = do

    def __str__(self) -> str:
        """One paragraph: ``[code] what (where). what to do``."""
        place = f" ({self.where})" if self.where else ""
        advice = f" {self.do}" if self.do else ""
        return f"[{self.code}] {self.what}{place}.{advice}"

    def __reduce__(self) -> tuple[object, ...]:
        """Support pickling: tasks raise these in other processes."""
        return (_rebuild, (type(self), self.what, self.where, self.do))


def _rebuild(
    kind: type[AnabranchError], what: str, where: str | None, do: str | None
) -> AnabranchError:
    return kind(what, where=where, do=do)


class BuildError(AnabranchError):
    """The user's dataflow cannot run. Nothing was started."""

    code = "build"


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a dataflow: the operator, what is wrong, and what to do."""

    operator: str
    what: str
    do: str

    def __str__(self) -> str:
        """Format the problem as one line."""
        return f"{self.operator}: {self.what}. {self.do}"


class InvalidDataflow(BuildError):
    """The dataflow has problems; the message lists each on a line."""

    code = "dataflow.invalid"

    def __init__(self, name: str, problems: Sequence[Problem]) -> None:
        """Keep the problems, in graph order."""
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__(f'Dataflow "{name}" has {count}')
        self.name = name
        self.problems = tuple(problems)

    def __str__(self) -> str:
        """A header with the dataflow's name, then the problems.

        An error rebuilt by ``failures.error_of`` has the whole text in ``what`` instead.
        """
        if not self.problems:
            return f"[{self.code}] {self.what}"
        return "\n  ".join([f"[{self.code}] {self.what}:", *map(str, self.problems)])

    def __reduce__(self) -> tuple[object, ...]:
        """Support pickling, problems included."""
        return (type(self), (self.name, self.problems))


class InvalidAggregate(BuildError):
    """The aggregate is not supported, or not for this argument type."""

    code = "aggregate.invalid"


class InvalidSchema(BuildError):
    """The schema text cannot be parsed."""

    code = "schema.invalid"


class FlowNotFound(BuildError):
    """No dataflow has this name, or its module cannot be imported."""

    code = "build.flow_not_found"


class DirectoryError(AnabranchError):
    """The pipeline's directory does not match the pipeline. Nothing in it was changed."""

    code = "directory"


class OtherDataflow(DirectoryError):
    """The directory belongs to a dataflow with another name."""

    code = "directory.other_dataflow"


class ChangedDataflow(DirectoryError):
    """The dataflow no longer matches the state: an operator is gone or its state schema changed."""

    code = "directory.changed_dataflow"


class DirectoryInUse(DirectoryError):
    """Another process is running this pipeline."""

    code = "directory.in_use"


class FutureFormat(DirectoryError):
    """A file was written by a newer version of Anabranch."""

    code = "directory.future_format"


class PastFormat(DirectoryError):
    """An older version of Anabranch wrote the directory, in a format that has since changed."""

    code = "directory.past_format"


class NoPipeline(DirectoryError):
    """The directory holds no pipeline."""

    code = "directory.no_pipeline"


class StoreError(AnabranchError):
    """A file of the pipeline's store could not be written or read."""

    code = "store"


class DiskFull(StoreError):
    """The disk is full. The unfinished file was removed; nothing was committed."""

    code = "store.disk_full"


class StoreUnavailable(StoreError):
    """A directory is missing or read-only, or access is denied."""

    code = "store.unavailable"


class NameTaken(StoreError):
    """A file to be created already exists. It was left unchanged."""

    code = "store.name_taken"


class MissingRun(StoreError):
    """A committed run or blob is not in the store."""

    code = "store.missing_run"


class CorruptRun(StoreError):
    """The bytes of a run or blob differ from those committed."""

    code = "store.corrupt_run"


class CorruptStaged(StoreError):
    """The bytes of a staged output file differ from those committed."""

    code = "store.corrupt_staged"


class MissingEntry(StoreError):
    """A required journal entry is missing."""

    code = "store.missing_entry"


class CorruptEntry(StoreError):
    """A journal entry is truncated or damaged."""

    code = "store.corrupt_entry"


class SourceError(AnabranchError):
    """Input could not be found or read."""

    code = "source"


class SourceUnavailable(SourceError):
    """The location that a source reads from does not exist."""

    code = "source.unavailable"


class FileChanged(SourceError):
    """An input file changed after it was planned: its size or modification time differs."""

    code = "source.file_changed"


class FileGone(SourceError):
    """A planned input file no longer exists."""

    code = "source.file_gone"


class UnreadableFile(SourceError):
    """An input file has a name that Spark cannot open."""

    code = "source.unreadable_file"


class StreamFailed(SourceError):
    """The streaming query that feeds a source failed."""

    code = "source.stream_failed"


class ReadFailed(SourceError):
    """A source's own code failed while reading."""

    code = "source.read_failed"


class SinkError(AnabranchError):
    """Output could not be published. It stays staged; nothing is lost."""

    code = "sink"


class TargetTaken(SinkError):
    """The target of a sink already holds the output of another pipeline or sink."""

    code = "sink.target_taken"


class PublishFailed(SinkError):
    """A sink rejected the output of a committed step."""

    code = "sink.publish_failed"


class CallbackFailed(SinkError):
    """The user's callback raised for a committed step."""

    code = "sink.callback"


class StepError(AnabranchError):
    """A step could not be committed. Its plan stays in the journal and is retried on restart."""

    code = "step"


class UserFunctionFailed(StepError):
    """A user function raised."""

    code = "step.user_function"


class OutputMismatch(StepError):
    """A user function returned a value that does not fit its schema."""

    code = "step.output_mismatch"


class AttemptsDisagree(StepError):
    """Tasks kept using different attempts of each other, or executors kept getting lost."""

    code = "step.attempts_disagree"


class Overflow(StepError):
    """A number is out of range for its column's type."""

    code = "step.overflow"


class StepTimeout(StepError):
    """A step exceeded its time limit and was cancelled."""

    code = "step.timeout"


class StepDiverged(StepError):
    """A replayed step gave a different result from the first run."""

    code = "step.diverged"


class StepCancelled(StepError):
    """The step was cancelled on request."""

    code = "step.cancelled"


class StepFailed(StepError):
    """Spark could not run the step for a reason of its own."""

    code = "step.failed"


class QueryError(AnabranchError):
    """State could not be read or queried. The pipeline is not affected."""

    code = "query"


class InvalidQuery(QueryError):
    """Spark cannot parse or analyze the query."""

    code = "query.invalid"


class SeveralStatements(QueryError):
    """The text holds more than one statement."""

    code = "query.several_statements"


class NotAQuery(QueryError):
    """The statement does something other than return rows."""

    code = "query.not_a_query"


class ForbiddenRelation(QueryError):
    """The query reads something other than state: a file, a table, an external relation."""

    code = "query.forbidden_relation"


class ForbiddenFunction(QueryError):
    """The query calls a function with outside effects, or one that is not built into Spark."""

    code = "query.forbidden_function"


class UnknownOperator(QueryError):
    """No stateful operator has this name."""

    code = "query.unknown_operator"


class UnknownStep(QueryError):
    """The step is not committed."""

    code = "query.unknown_step"


class SnapshotExpired(QueryError):
    """The files of this older step have been removed."""

    code = "query.snapshot_expired"


class QueryTimeout(QueryError):
    """The query exceeded its time limit and was cancelled."""

    code = "query.timeout"


class QueryTooLarge(QueryError):
    """The result exceeds its limit of rows or bytes."""

    code = "query.too_large"


class QueryFailed(QueryError):
    """Spark accepted the query but could not run it."""

    code = "query.failed"


class RequestError(AnabranchError):
    """An HTTP call was not carried out. It changed nothing."""

    code = "request"


class InvalidRequest(RequestError):
    """The call's parameters, body or headers are invalid."""

    code = "request.invalid"


class UnknownPath(RequestError):
    """There is no such call."""

    code = "request.unknown"


class Unauthorized(RequestError):
    """The token of the call is missing or wrong."""

    code = "request.unauthorized"


class Forbidden(RequestError):
    """The call comes from another origin, or uses another host name."""

    code = "request.forbidden"


class RequestTooLarge(RequestError):
    """The call's body exceeds the size limit."""

    code = "request.too_large"


class RequestTooSlow(RequestError):
    """The call's body did not arrive in time."""

    code = "request.too_slow"


class TooManyRequests(RequestError):
    """The limit of concurrent calls of this kind is reached."""

    code = "request.too_many"


class OperationError(AnabranchError):
    """A pipeline did not carry out an operation."""

    code = "operation"


class OperationRefused(OperationError):
    """The pipeline cannot do this now. Nothing was changed."""

    code = "operation.refused"


class CoordinatorError(AnabranchError):
    """The coordinator is unreachable or cannot answer."""

    code = "coordinator"


class CoordinatorUnreachable(CoordinatorError):
    """No coordinator answers: no pipeline is running there, or its process is unreachable."""

    code = "coordinator.unreachable"


class CoordinatorStarting(CoordinatorError):
    """The coordinator is not connected to its node yet and cannot answer."""

    code = "coordinator.starting"


class TokenMissing(CoordinatorError):
    """Listening beyond loopback requires a token, and none is set."""

    code = "coordinator.token_missing"


class TokenInvalid(CoordinatorError):
    """The token is empty, or has characters that are not allowed in a header."""

    code = "coordinator.token_invalid"


class AddressTaken(CoordinatorError):
    """The coordinator cannot listen at this address."""

    code = "coordinator.address_taken"


class DeadlinePassed(CoordinatorError):
    """A wait exceeded its deadline."""

    code = "coordinator.deadline"


class Fenced(CoordinatorError):
    """Another coordinator has taken over. This one can no longer commit anything."""

    code = "coordinator.fenced"


class NodeError(AnabranchError):
    """The node, which runs steps, did not carry out a request."""

    code = "node"


class NodeUnreachable(NodeError):
    """The node does not answer, or lacks what was requested."""

    code = "node.unreachable"


class SparkUnavailable(AnabranchError):
    """Spark could not be started. Nothing ran."""

    code = "spark.unavailable"
