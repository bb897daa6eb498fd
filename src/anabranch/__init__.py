"""Elastic, fault-tolerant, stateful stream processing for Python, on Spark."""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

from anabranch.errors import (
    AnabranchError,
    BuildError,
    ConnectorError,
    CoordinatorError,
    DirectoryError,
    NodeError,
    OperationError,
    ProgressError,
    QueryError,
    RequestError,
    SinkError,
    SourceError,
    SparkUnavailable,
    StepError,
    StoreError,
)
from anabranch.run import run

if TYPE_CHECKING:
    from anabranch.coordinator.effects import StepDone
    from anabranch.coordinator.settings import Deadlines, Settings
    from anabranch.dataflow.flow import Dataflow
    from anabranch.dataflow.handles import ListState, MapState, Process, ValueState
    from anabranch.dataflow.timestamps import ARRIVAL
    from anabranch.dataflow.windows import session, sliding, tumbling
    from anabranch.messages import ArrivingState, KeyRegister, LeavingState, NewShares
    from anabranch.pipeline import Pipeline
    from anabranch.protocol.sinks import Retry
    from anabranch.protocol.status import Phase, Status
    from anabranch.rescale.rounds import MovePolicy, RescaleSettings
    from anabranch.sinks.callback import CallbackSink
    from anabranch.sinks.file import FileSink
    from anabranch.sinks.memory import MemorySink
    from anabranch.sources.files import FileSource
    from anabranch.sources.generator import GeneratorSource
    from anabranch.sources.python_data_source import PythonDataSource
    from anabranch.sources.scripted import EOF, PAUSE, Fail, ScriptedSource
    from anabranch.sources.structured_stream import StructuredStreamSource

__version__ = "0.1.0"

__all__ = [
    "ARRIVAL",
    "EOF",
    "PAUSE",
    "AnabranchError",
    "ArrivingState",
    "BuildError",
    "CallbackSink",
    "ConnectorError",
    "CoordinatorError",
    "Dataflow",
    "Deadlines",
    "DirectoryError",
    "Fail",
    "FileSink",
    "FileSource",
    "GeneratorSource",
    "KeyRegister",
    "LeavingState",
    "ListState",
    "MapState",
    "MemorySink",
    "MovePolicy",
    "NewShares",
    "NodeError",
    "OperationError",
    "Phase",
    "Pipeline",
    "Process",
    "ProgressError",
    "PythonDataSource",
    "QueryError",
    "RequestError",
    "RescaleSettings",
    "Retry",
    "ScriptedSource",
    "Settings",
    "SinkError",
    "SourceError",
    "SparkUnavailable",
    "Status",
    "StepDone",
    "StepError",
    "StoreError",
    "StructuredStreamSource",
    "ValueState",
    "__version__",
    "run",
    "session",
    "sliding",
    "tumbling",
]

# Every name is imported when it is first used: a command that needs none of them starts at once.
# Two are here from the start: the errors, which cost nothing, and ``run``, which would otherwise be
# hidden by the module of that name.
_MODULES = {
    "StepDone": "coordinator.effects",
    "Deadlines": "coordinator.settings",
    "Settings": "coordinator.settings",
    "Dataflow": "dataflow.flow",
    "ListState": "dataflow.handles",
    "MapState": "dataflow.handles",
    "Process": "dataflow.handles",
    "ValueState": "dataflow.handles",
    "ARRIVAL": "dataflow.timestamps",
    "session": "dataflow.windows",
    "sliding": "dataflow.windows",
    "tumbling": "dataflow.windows",
    "ArrivingState": "messages",
    "KeyRegister": "messages",
    "LeavingState": "messages",
    "NewShares": "messages",
    "Pipeline": "pipeline",
    "Retry": "protocol.sinks",
    "Phase": "protocol.status",
    "Status": "protocol.status",
    "MovePolicy": "rescale.rounds",
    "RescaleSettings": "rescale.rounds",
    "CallbackSink": "sinks.callback",
    "FileSink": "sinks.file",
    "MemorySink": "sinks.memory",
    "FileSource": "sources.files",
    "GeneratorSource": "sources.generator",
    "PythonDataSource": "sources.python_data_source",
    "EOF": "sources.scripted",
    "PAUSE": "sources.scripted",
    "Fail": "sources.scripted",
    "ScriptedSource": "sources.scripted",
    "StructuredStreamSource": "sources.structured_stream",
}


def __getattr__(name: str) -> object:
    """Import a public name."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(_import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, imported or not."""
    return sorted({*globals(), *__all__})
