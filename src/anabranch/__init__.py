"""Elastic, fault-tolerant, stateful stream processing for Python, on Spark."""

from anabranch.coordinator.effects import StepDone
from anabranch.coordinator.settings import Deadlines, Settings
from anabranch.dataflow.flow import Dataflow
from anabranch.dataflow.handles import (
    ArrivingState,
    KeyRegister,
    LeavingState,
    ListState,
    MapState,
    NewShares,
    Process,
    ValueState,
)
from anabranch.errors import AnabranchError
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

__all__ = [
    "EOF",
    "PAUSE",
    "AnabranchError",
    "ArrivingState",
    "CallbackSink",
    "Dataflow",
    "Deadlines",
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
    "Phase",
    "Pipeline",
    "Process",
    "PythonDataSource",
    "RescaleSettings",
    "ScriptedSource",
    "Settings",
    "Status",
    "StepDone",
    "StructuredStreamSource",
    "ValueState",
    "run",
]
