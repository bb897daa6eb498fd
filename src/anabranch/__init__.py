"""Elastic, fault-tolerant, stateful stream processing for Python, on Spark."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.coordinator.effects import StepDone
    from anabranch.coordinator.settings import Settings
    from anabranch.coordinator.status import Phase, Status
    from anabranch.dataflow.flow import Dataflow
    from anabranch.dataflow.handles import ListState, MapState, Process, ValueState
    from anabranch.errors import AnabranchError
    from anabranch.pipeline import Pipeline
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
    "CallbackSink",
    "Dataflow",
    "Fail",
    "FileSink",
    "FileSource",
    "GeneratorSource",
    "ListState",
    "MapState",
    "MemorySink",
    "Phase",
    "Pipeline",
    "Process",
    "PythonDataSource",
    "ScriptedSource",
    "Settings",
    "Status",
    "StepDone",
    "StructuredStreamSource",
    "ValueState",
    "run",
]

_ROOMS = {
    "coordinator.effects": ("StepDone",),
    "coordinator.settings": ("Settings",),
    "coordinator.status": ("Phase", "Status"),
    "dataflow.flow": ("Dataflow",),
    "dataflow.handles": ("ListState", "MapState", "Process", "ValueState"),
    "errors": ("AnabranchError",),
    "pipeline": ("Pipeline",),
    "run": ("run",),
    "sinks.callback": ("CallbackSink",),
    "sinks.file": ("FileSink",),
    "sinks.memory": ("MemorySink",),
    "sources.files": ("FileSource",),
    "sources.generator": ("GeneratorSource",),
    "sources.python_data_source": ("PythonDataSource",),
    "sources.scripted": ("EOF", "PAUSE", "Fail", "ScriptedSource"),
    "sources.structured_stream": ("StructuredStreamSource",),
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> object:
    """What is named, imported when it is first used.

    A task, a shell command and a node each import a part of the package: none waits for the rest.
    """
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
