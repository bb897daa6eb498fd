"""The coordinator's records: effects on the journal performed, and where a pipeline stands."""

from anabranch.coordinator.records.checkpoint_files import files_of
from anabranch.coordinator.records.reading import read_standing
from anabranch.coordinator.records.writing import RecordEffect, Records

__all__ = ["RecordEffect", "Records", "files_of", "read_standing"]
