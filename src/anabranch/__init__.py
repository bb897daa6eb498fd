"""Elastic, fault-tolerant, stateful stream processing for Python, on Spark."""

from anabranch.coordinator.effects import StepDone
from anabranch.coordinator.settings import Deadlines, Settings
from anabranch.dataflow.flow import Dataflow
from anabranch.dataflow.handles import ListState, MapState, Process, ValueState
from anabranch.errors import (
    AnabranchError,
    BuildError,
    CoordinatorError,
    DirectoryError,
    NodeError,
    OperationError,
    QueryError,
    RequestError,
    SinkError,
    SourceError,
    SparkUnavailable,
    StepError,
    StoreError,
)
from anabranch.messages import ArrivingState, KeyRegister, LeavingState, NewShares
from anabranch.pipeline import Pipeline
from anabranch.protocol.status import Phase, Status
from anabranch.rescale.rounds import MovePolicy, RescaleSettings
from anabranch.run import run
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
    "EOF",
    "PAUSE",
    "AnabranchError",
    "ArrivingState",
    "BuildError",
    "CallbackSink",
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
    "PythonDataSource",
    "QueryError",
    "RequestError",
    "RescaleSettings",
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
]
