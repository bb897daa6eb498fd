"""The tree of all errors that Anabranch raises: below each branch, its kinds.

    AnabranchError
    ├── BuildError                the user's dataflow cannot run
    ├── DirectoryError            the pipeline's directory does not match
    ├── StoreError                files of the pipeline's store
    ├── SourceError               input
    ├── SinkError                 output
    ├── StepError                 a step that could not be committed
    ├── ProgressError             capabilities and frontiers
    ├── QueryError                state that could not be read or queried
    ├── RequestError              an HTTP call that was not carried out
    ├── ConnectorError            connectors and gateways
    ├── OperationError            an operation that a pipeline did not carry out
    ├── CoordinatorError          the coordinator as its clients see it
    ├── NodeError                 the process that runs steps
    └── SparkUnavailable          Spark could not be started

Catch by branch. Each class has a stable ``code``, which logs, the CLI and HTTP print too;
``docs/errors.md`` lists them with advice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar


class AnabranchError(Exception):
    """The root of the tree: what happened, where, and what to do about it.

    The message is one readable paragraph; the parts are available as attributes.
    """

    code: ClassVar[str] = "anabranch"

    def __init_subclass__(cls, *, code: str | None = None) -> None:
        """Set the code of a kind; without one it has that of its branch."""
        if code is not None:
            cls.code = code

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
        return partial(type(self), where=self.where, do=self.do), (self.what,)


class BuildError(AnabranchError, code="build"):
    """The user's dataflow cannot run. Nothing was started."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a dataflow: the operator, what is wrong, and what to do."""

    operator: str
    what: str
    do: str

    def __str__(self) -> str:
        """Format the problem as one line."""
        return f"{self.operator}: {self.what}. {self.do}"


class InvalidDataflow(BuildError, code="dataflow.invalid"):
    """The dataflow has problems; the message lists each on a line."""

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


class InvalidAggregate(BuildError, code="aggregate.invalid"):
    """The aggregate is not supported, or not for this argument type."""


class InvalidSchema(BuildError, code="schema.invalid"):
    """The schema text cannot be parsed."""


class FlowNotFound(BuildError, code="build.flow_not_found"):
    """No dataflow has this name, or its module cannot be imported."""


class DirectoryError(AnabranchError, code="directory"):
    """The pipeline's directory does not match the pipeline. Nothing in it was changed."""


class OtherDataflow(DirectoryError, code="directory.other_dataflow"):
    """The directory belongs to a dataflow with another name."""


class ChangedDataflow(DirectoryError, code="directory.changed_dataflow"):
    """The dataflow no longer matches the state: an operator is gone or its state schema changed."""


class DirectoryInUse(DirectoryError, code="directory.in_use"):
    """Another process is running this pipeline."""


class FutureFormat(DirectoryError, code="directory.future_format"):
    """A file was written by a newer version of Anabranch."""


class PastFormat(DirectoryError, code="directory.past_format"):
    """An older version of Anabranch wrote the directory, in a format that has since changed."""


class NoPipeline(DirectoryError, code="directory.no_pipeline"):
    """The directory holds no pipeline."""


class DirectoryOpenToAll(DirectoryError, code="directory.open_to_all"):
    """Everybody may write to the pipeline's directory, so its files cannot be trusted."""


class StoreError(AnabranchError, code="store"):
    """A file of the pipeline's store could not be written or read."""


class DiskFull(StoreError, code="store.disk_full"):
    """The disk is full. The unfinished file was removed; nothing was committed."""


class StoreUnavailable(StoreError, code="store.unavailable"):
    """A directory is missing or read-only, or access is denied."""


class NameTaken(StoreError, code="store.name_taken"):
    """A file to be created already exists. It was left unchanged."""


class MissingRun(StoreError, code="store.missing_run"):
    """A committed run or blob is not in the store."""


class CorruptRun(StoreError, code="store.corrupt_run"):
    """The bytes of a run or blob differ from those committed."""


class CorruptStaged(StoreError, code="store.corrupt_staged"):
    """The bytes of a staged output file differ from those committed."""


class MissingEntry(StoreError, code="store.missing_entry"):
    """A required journal entry is missing."""


class CorruptEntry(StoreError, code="store.corrupt_entry"):
    """A journal entry is truncated or damaged."""


class SourceError(AnabranchError, code="source"):
    """Input could not be found or read."""


class SourceUnavailable(SourceError, code="source.unavailable"):
    """The location that a source reads from does not exist."""


class FileChanged(SourceError, code="source.file_changed"):
    """An input file changed after it was planned: its size or modification time differs."""


class FileGone(SourceError, code="source.file_gone"):
    """A planned input file no longer exists."""


class UnreadableFile(SourceError, code="source.unreadable_file"):
    """An input file has a name that Spark cannot open."""


class StreamFailed(SourceError, code="source.stream_failed"):
    """The streaming query that feeds a source failed."""


class ReadFailed(SourceError, code="source.read_failed"):
    """A source's own code failed while reading."""


class MissingTime(SourceError, code="source.missing_time"):
    """A row has no event time. The step has no effect."""


class SinkError(AnabranchError, code="sink"):
    """Output could not be published. It stays staged; nothing is lost."""


class TargetTaken(SinkError, code="sink.target_taken"):
    """The target of a sink already holds the output of another pipeline or sink."""


class SinkUnavailable(SinkError, code="sink.unavailable"):
    """A sink could not be opened."""


class PublishFailed(SinkError, code="sink.publish_failed"):
    """A sink rejected the output of a committed step."""


class CallbackFailed(SinkError, code="sink.callback"):
    """The user's callback raised for a committed step."""


class StepError(AnabranchError, code="step"):
    """A step could not be committed. Its plan stays in the journal and is retried on restart."""


class UserFunctionFailed(StepError, code="step.user_function"):
    """A user function raised."""


class OutputMismatch(StepError, code="step.output_mismatch"):
    """A user function returned a value that does not fit its schema."""


class AttemptsDisagree(StepError, code="step.attempts_disagree"):
    """Tasks kept using different attempts of each other, or executors kept getting lost."""


class Overflow(StepError, code="step.overflow"):
    """A number is out of range for its column's type."""


class StepTimeout(StepError, code="step.timeout"):
    """A step exceeded its time limit and was cancelled."""


class StepDiverged(StepError, code="step.diverged"):
    """A replayed step gave a different result from the first run."""


class StepCancelled(StepError, code="step.cancelled"):
    """The step was cancelled on request."""


class StepFailed(StepError, code="step.failed"):
    """Spark could not run the step for a reason of its own."""


class ProgressError(AnabranchError, code="progress"):
    """A capability was used for what it does not allow."""


class EarlierTime(ProgressError, code="progress.earlier_time"):
    """Output was to have an earlier time than its capability."""


class OtherOutput(ProgressError, code="progress.other_output"):
    """A capability was used for an output that it does not belong to."""


class CapabilityReleased(ProgressError, code="progress.released"):
    """A capability was used after its release, or that of received rows after their processing."""


class InvalidTopology(ProgressError, code="progress.topology"):
    """A graph of operators has a loop, lacks a port, or has two operators of one name."""


class QueryError(AnabranchError, code="query"):
    """State could not be read or queried. The pipeline is not affected."""


class InvalidQuery(QueryError, code="query.invalid"):
    """Spark cannot parse or analyze the query."""


class SeveralStatements(QueryError, code="query.several_statements"):
    """The text holds more than one statement."""


class NotAQuery(QueryError, code="query.not_a_query"):
    """The statement does something other than return rows."""


class ForbiddenRelation(QueryError, code="query.forbidden_relation"):
    """The query reads something other than state: a file, a table, an external relation."""


class ForbiddenFunction(QueryError, code="query.forbidden_function"):
    """The query calls a function with outside effects, or one that is not built into Spark."""


class UnknownOperator(QueryError, code="query.unknown_operator"):
    """No stateful operator has this name."""


class UnknownStep(QueryError, code="query.unknown_step"):
    """The step is not committed."""


class SnapshotExpired(QueryError, code="query.snapshot_expired"):
    """The files of this older step have been removed."""


class QueryTimeout(QueryError, code="query.timeout"):
    """The query exceeded its time limit and was cancelled."""


class QueryTooLarge(QueryError, code="query.too_large"):
    """The result exceeds its limit of rows or bytes."""


class ExpressionTooLarge(QueryError, code="query.expression_too_large"):
    """An expression of the query would build a value that is too large."""


class QueriesStuck(QueryError, code="query.stuck"):
    """Earlier queries never returned, and hold too many threads."""


class QueryFailed(QueryError, code="query.failed"):
    """Spark accepted the query but could not run it."""


class RequestError(AnabranchError, code="request"):
    """An HTTP call was not carried out. It changed nothing."""


class InvalidRequest(RequestError, code="request.invalid"):
    """The call's parameters, body or headers are invalid."""


class UnknownPath(RequestError, code="request.unknown"):
    """There is no such call."""


class Unauthorized(RequestError, code="request.unauthorized"):
    """The token of the call is missing or wrong."""


class Forbidden(RequestError, code="request.forbidden"):
    """The call comes from another origin, or uses another host name."""


class RequestTooLarge(RequestError, code="request.too_large"):
    """The call's body exceeds the size limit."""


class RequestTooSlow(RequestError, code="request.too_slow"):
    """The head or the body of the call did not arrive in time."""


class TooManyRequests(RequestError, code="request.too_many"):
    """The limit of concurrent calls of this kind, or of connections, is reached."""


class ConnectorError(AnabranchError, code="connector"):
    """A connector and a gateway do not understand each other. Other connections go on."""


class WireError(ConnectorError, code="connector.wire"):
    """The other side sent something that is no frame of the connector protocol."""


class FrameTooLarge(ConnectorError, code="connector.frame_too_large"):
    """The other side announced a frame above the limit."""


class OutOfTurn(ConnectorError, code="connector.out_of_turn"):
    """A frame was sent when the protocol does not allow it."""


class OperationError(AnabranchError, code="operation"):
    """A pipeline did not carry out an operation."""


class OperationRefused(OperationError, code="operation.refused"):
    """The pipeline cannot do this now. Nothing was changed."""


class CoordinatorError(AnabranchError, code="coordinator"):
    """The coordinator is unreachable or cannot answer."""


class CoordinatorUnreachable(CoordinatorError, code="coordinator.unreachable"):
    """No coordinator answers: no pipeline is running there, or its process is unreachable."""


class CoordinatorStarting(CoordinatorError, code="coordinator.starting"):
    """The coordinator is not connected to its node yet and cannot answer."""


class TokenMissing(CoordinatorError, code="coordinator.token_missing"):
    """Listening beyond loopback requires a token, and none is set."""


class TokenInvalid(CoordinatorError, code="coordinator.token_invalid"):
    """The token is empty, or has characters that are not allowed in a header."""


class AddressTaken(CoordinatorError, code="coordinator.address_taken"):
    """The coordinator cannot listen at this address."""


class DeadlinePassed(CoordinatorError, code="coordinator.deadline"):
    """A wait exceeded its deadline."""


class Fenced(CoordinatorError, code="coordinator.fenced"):
    """Another coordinator has taken over. This one can no longer commit anything."""


class NodeError(AnabranchError, code="node"):
    """The node, which runs steps, did not carry out a request."""


class JvmDied(NodeError, code="node.jvm_died"):
    """Spark's Java virtual machine ended while the node lived. Nothing committed is lost."""


class NodeUnreachable(NodeError, code="node.unreachable"):
    """The node does not answer, or lacks what was requested."""


class SparkUnavailable(AnabranchError, code="spark.unavailable"):
    """Spark could not be started, or its Python cannot run tasks. Nothing ran."""
