"""Every error that Anabranch raises, in one tree.

    AnabranchError
    ├── BuildError                what the user wrote cannot run
    │   ├── InvalidDataflow       dataflow.invalid
    │   ├── InvalidAggregate      aggregate.invalid
    │   ├── InvalidSchema         schema.invalid
    │   └── FlowNotFound          build.flow_not_found
    ├── DirectoryError            the pipeline's directory does not fit
    │   ├── OtherDataflow         directory.other_dataflow
    │   ├── ChangedDataflow       directory.changed_dataflow
    │   ├── DirectoryInUse        directory.in_use
    │   ├── FutureFormat          directory.future_format
    │   ├── PastFormat            directory.past_format
    │   └── NoPipeline            directory.no_pipeline
    ├── StoreError                files that hold the truth
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
    ├── RequestError              a call over HTTP that was not carried out
    │   ├── InvalidRequest        request.invalid
    │   ├── UnknownPath           request.unknown
    │   ├── Unauthorized          request.unauthorized
    │   ├── Forbidden             request.forbidden
    │   ├── RequestTooLarge       request.too_large
    │   ├── RequestTooSlow        request.too_slow
    │   └── TooManyRequests       request.too_many
    ├── OperationError            something that was asked of a pipeline and not done
    │   └── OperationRefused      operation.refused
    ├── CoordinatorError          the coordinator as others see it
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

Catch by branch. Each class has a stable ``code``, which logs, the shell and HTTP print too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


class AnabranchError(Exception):
    """The root of the tree: what happened, where, and what to do about it.

    The text is one readable paragraph. The parts stay available as attributes, so that another
    edge can print them its own way.
    """

    code: ClassVar[str] = "anabranch"

    def __init__(self, what: str, *, where: str | None = None, do: str | None = None) -> None:
        """Keep the parts; the message is put together in ``__str__``."""
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
        """Survive pickling: tasks raise these in other processes."""
        return (_rebuild, (type(self), self.what, self.where, self.do))


def _rebuild(
    kind: type[AnabranchError], what: str, where: str | None, do: str | None
) -> AnabranchError:
    return kind(what, where=where, do=do)


class BuildError(AnabranchError):
    """What the user wrote cannot run. Nothing was started."""

    code = "build"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a dataflow: at which operator, what, and what to do."""

    operator: str
    what: str
    do: str

    def __str__(self) -> str:
        """One line."""
        return f"{self.operator}: {self.what}. {self.do}"


class InvalidDataflow(BuildError):
    """A dataflow with problems; the text lists all of them, one a line."""

    code = "dataflow.invalid"

    def __init__(self, name: str, problems: Sequence[Problem]) -> None:
        """Keep the problems, in the order of the graph."""
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__(f'Dataflow "{name}" has {count}')
        self.name = name
        self.problems = tuple(problems)

    def __str__(self) -> str:
        """A header with the dataflow's name, then the problems.

        One that has travelled (``failures.error_of``) has the whole text in ``what`` instead.
        """
        if not self.problems:
            return f"[{self.code}] {self.what}"
        return "\n  ".join([f"[{self.code}] {self.what}:", *map(str, self.problems)])

    def __reduce__(self) -> tuple[object, ...]:
        """Survive pickling, problems included."""
        return (type(self), (self.name, self.problems))


class InvalidAggregate(BuildError):
    """An aggregate that is not supported, or not defined for its argument's type."""

    code = "aggregate.invalid"


class InvalidSchema(BuildError):
    """A schema text that cannot be read."""

    code = "schema.invalid"


class FlowNotFound(BuildError):
    """There is no dataflow under this name, or its module cannot be imported."""

    code = "build.flow_not_found"


class DirectoryError(AnabranchError):
    """The pipeline's directory does not fit what is to run in it. Nothing in it was changed."""

    code = "directory"


class OtherDataflow(DirectoryError):
    """The directory holds the state of a dataflow of another name."""

    code = "directory.other_dataflow"


class ChangedDataflow(DirectoryError):
    """The dataflow no longer fits the state: an operator is gone or has another state schema."""

    code = "directory.changed_dataflow"


class DirectoryInUse(DirectoryError):
    """Another live process runs this pipeline."""

    code = "directory.in_use"


class FutureFormat(DirectoryError):
    """A file was written by a newer version of Anabranch."""

    code = "directory.future_format"


class PastFormat(DirectoryError):
    """The directory was written by an older version of Anabranch, in a format that has changed."""

    code = "directory.past_format"


class NoPipeline(DirectoryError):
    """There is no pipeline in the directory."""

    code = "directory.no_pipeline"


class StoreError(AnabranchError):
    """A file that holds the truth could not be written or read."""

    code = "store"


class DiskFull(StoreError):
    """There is no space left. The unfinished file was removed; nothing was committed."""

    code = "store.disk_full"


class StoreUnavailable(StoreError):
    """A directory is missing, read-only or not permitted."""

    code = "store.unavailable"


class NameTaken(StoreError):
    """A file that was to be created exists already. It was left as it is."""

    code = "store.name_taken"


class MissingRun(StoreError):
    """A run or a blob that a commit names is not in the store."""

    code = "store.missing_run"


class CorruptRun(StoreError):
    """The bytes of a run or a blob are not those that were committed."""

    code = "store.corrupt_run"


class CorruptStaged(StoreError):
    """A staged output file's bytes are not those that were committed."""

    code = "store.corrupt_staged"


class MissingEntry(StoreError):
    """A journal entry that must be there is not."""

    code = "store.missing_entry"


class CorruptEntry(StoreError):
    """A journal entry is truncated or damaged."""

    code = "store.corrupt_entry"


class SourceError(AnabranchError):
    """Input could not be found or read."""

    code = "source"


class SourceUnavailable(SourceError):
    """The place a source reads from is not there."""

    code = "source.unavailable"


class FileChanged(SourceError):
    """An input file is not the one that was planned: its size or time of change differs."""

    code = "source.file_changed"


class FileGone(SourceError):
    """An input file that was planned is not there any more."""

    code = "source.file_gone"


class UnreadableFile(SourceError):
    """An input file has a name under which Spark cannot open it."""

    code = "source.unreadable_file"


class StreamFailed(SourceError):
    """The streaming query that feeds a source failed."""

    code = "source.stream_failed"


class ReadFailed(SourceError):
    """A source's own code failed while it read."""

    code = "source.read_failed"


class SinkError(AnabranchError):
    """Output could not be published. It stays staged; nothing is lost."""

    code = "sink"


class TargetTaken(SinkError):
    """The place a sink writes to holds the output of another pipeline or sink."""

    code = "sink.target_taken"


class PublishFailed(SinkError):
    """A sink refused a committed step's output."""

    code = "sink.publish_failed"


class CallbackFailed(SinkError):
    """A function of the user's that was given a committed step raised."""

    code = "sink.callback"


class StepError(AnabranchError):
    """A step could not be committed. Its plan stays in the journal and runs again on restart."""

    code = "step"


class UserFunctionFailed(StepError):
    """A function of the user's raised."""

    code = "step.user_function"


class OutputMismatch(StepError):
    """A function of the user's returned something that does not fit its schema."""

    code = "step.output_mismatch"


class AttemptsDisagree(StepError):
    """Tasks used different attempts of one another, or executors were lost, again and again."""

    code = "step.attempts_disagree"


class Overflow(StepError):
    """A number left the range of its column's type."""

    code = "step.overflow"


class StepTimeout(StepError):
    """A step was not over in time, and was cancelled."""

    code = "step.timeout"


class StepDiverged(StepError):
    """A replayed step came to something else than the first time."""

    code = "step.diverged"


class StepCancelled(StepError):
    """The step was given up because that was asked for."""

    code = "step.cancelled"


class StepFailed(StepError):
    """Spark could not run the step for a reason of its own."""

    code = "step.failed"


class QueryError(AnabranchError):
    """State could not be read or queried. The pipeline is not touched by it."""

    code = "query"


class InvalidQuery(QueryError):
    """Spark cannot make sense of the query."""

    code = "query.invalid"


class SeveralStatements(QueryError):
    """There is more than one statement."""

    code = "query.several_statements"


class NotAQuery(QueryError):
    """The statement does something else than give rows."""

    code = "query.not_a_query"


class ForbiddenRelation(QueryError):
    """The query reads something that is not state: a file, a table, an outside relation."""

    code = "query.forbidden_relation"


class ForbiddenFunction(QueryError):
    """The query calls a function that reaches outside, or one that is not built into Spark."""

    code = "query.forbidden_function"


class UnknownOperator(QueryError):
    """There is no stateful operator of this name."""

    code = "query.unknown_operator"


class UnknownStep(QueryError):
    """The step is not committed."""

    code = "query.unknown_step"


class SnapshotExpired(QueryError):
    """The files of an older step have been removed."""

    code = "query.snapshot_expired"


class QueryTimeout(QueryError):
    """The query took longer than its limit and was cancelled."""

    code = "query.timeout"


class QueryTooLarge(QueryError):
    """The result has more rows or bytes than its limit."""

    code = "query.too_large"


class QueryFailed(QueryError):
    """Spark understood the query and could not compute it."""

    code = "query.failed"


class RequestError(AnabranchError):
    """A call over HTTP was not carried out. Nothing was changed by it."""

    code = "request"


class InvalidRequest(RequestError):
    """The call's parameters, body or headers are not what the call takes."""

    code = "request.invalid"


class UnknownPath(RequestError):
    """There is no such call."""

    code = "request.unknown"


class Unauthorized(RequestError):
    """The call lacks the token, or has another one."""

    code = "request.unauthorized"


class Forbidden(RequestError):
    """The call comes from a page of another origin, or by another host's name."""

    code = "request.forbidden"


class RequestTooLarge(RequestError):
    """The call's body is larger than any that is taken."""

    code = "request.too_large"


class RequestTooSlow(RequestError):
    """The call's body did not arrive in time."""

    code = "request.too_slow"


class TooManyRequests(RequestError):
    """As many calls of this kind are under way as are carried out at a time."""

    code = "request.too_many"


class OperationError(AnabranchError):
    """Something that was asked of a pipeline was not done."""

    code = "operation"


class OperationRefused(OperationError):
    """The pipeline cannot do this now. Nothing was changed."""

    code = "operation.refused"


class CoordinatorError(AnabranchError):
    """The coordinator cannot be reached, or cannot answer."""

    code = "coordinator"


class CoordinatorUnreachable(CoordinatorError):
    """No coordinator answers: no pipeline runs there, or its process cannot be reached."""

    code = "coordinator.unreachable"


class CoordinatorStarting(CoordinatorError):
    """The coordinator has not met its node yet and cannot say this."""

    code = "coordinator.starting"


class TokenMissing(CoordinatorError):
    """Listening elsewhere than on loopback needs a token, and there is none."""

    code = "coordinator.token_missing"


class TokenInvalid(CoordinatorError):
    """The token is empty, or has characters that no header of a call could carry."""

    code = "coordinator.token_invalid"


class AddressTaken(CoordinatorError):
    """The coordinator cannot listen at this address."""

    code = "coordinator.address_taken"


class DeadlinePassed(CoordinatorError):
    """Something that was waited for did not come in time."""

    code = "coordinator.deadline"


class Fenced(CoordinatorError):
    """Another coordinator has taken over. Nothing that this one does counts any more."""

    code = "coordinator.fenced"


class NodeError(AnabranchError):
    """The process that runs steps does not do what it was asked for."""

    code = "node"


class NodeUnreachable(NodeError):
    """The node does not answer, or does not have what it was asked for."""

    code = "node.unreachable"


class SparkUnavailable(AnabranchError):
    """Spark could not be started. Nothing was run."""

    code = "spark.unavailable"
