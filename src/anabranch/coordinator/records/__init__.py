"""The coordinator's records: effects on the journal performed, and where a pipeline stands."""

from anabranch.coordinator.records.checkpoint_files import files_of
from anabranch.coordinator.records.copying import Copied, copy_checkpoint
from anabranch.coordinator.records.reading import read_standing
from anabranch.coordinator.records.writing import RecordEffect, Records

__all__ = [
    "Copied",
    "RecordEffect",
    "Records",
    "copy_checkpoint",
    "files_of",
    "read_standing",
]
