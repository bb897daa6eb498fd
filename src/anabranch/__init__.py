"""Elastic, fault-tolerant, stateful stream processing for Python, on Spark."""

from anabranch.dataflow.flow import Dataflow
from anabranch.errors import AnabranchError
from anabranch.node.runner import Settings, StepDone
from anabranch.pipeline import Phase, Pipeline, Status
from anabranch.run import run
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
    "Dataflow",
    "Fail",
    "FileSink",
    "FileSource",
    "GeneratorSource",
    "MemorySink",
    "Phase",
    "Pipeline",
    "PythonDataSource",
    "ScriptedSource",
    "Settings",
    "Status",
    "StepDone",
    "StructuredStreamSource",
    "run",
]
