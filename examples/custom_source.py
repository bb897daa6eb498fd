"""A Python data source of one's own: the lines of log files that grow, a partition per file.

Anything that `pyspark.sql.datasource` can read as a stream can be a source of a dataflow.
"""

from pathlib import Path

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

import anabranch as ab


class Piece(InputPartition):
    """The bytes of a file from `start` to `end`."""

    def __init__(self, path, start, end):
        self.path, self.start, self.end = path, start, end


class LogReader(DataSourceStreamReader):
    """Offsets say how many bytes of each file have been read."""

    def __init__(self, directory):
        self.directory = Path(directory).absolute()  # tasks have another working directory

    def initialOffset(self):
        """Where a new pipeline begins."""
        return {}

    def latestOffset(self, start, limit):
        """How much is there now."""
        return {path.name: whole_lines(path) for path in sorted(self.directory.glob("*.log"))}

    def partitions(self, start, end):
        """What a step reads: the same pieces whenever the same offsets are asked for."""
        pieces = [Piece(self.directory / name, start.get(name, 0), end[name]) for name in end]
        return [piece for piece in pieces if piece.start < piece.end]

    def read(self, partition):
        """Read a piece, in a task."""
        with open(partition.path, "rb") as file:
            file.seek(partition.start)
            text = file.read(partition.end - partition.start).decode()
        for line in text.splitlines():
            status, page = line.split(" ", 1)
            yield partition.path.stem, int(status), page


class Logs(DataSource):
    """Lines such as `200 /docs`: status and page."""

    @classmethod
    def name(cls):
        """Offsets of a source of this name are this source's."""
        return "logs"

    def schema(self):
        """The columns that `read` yields."""
        return "server string, status int, page string"

    def streamReader(self, schema):
        """Make a reader: one on the driver, others in tasks."""
        return LogReader(self.options["directory"])


def whole_lines(path):
    """How many bytes of a file there are up to its last line end: the rest is being written."""
    return path.read_bytes().rfind(b"\n") + 1


flow = ab.Dataflow("requests")
requests = flow.source("logs", ab.PythonDataSource(Logs, {"directory": "logs"}, watch=False))
by_server = requests.key_distribute("by-server", "server")
counts = by_server.aggregate("counts", requests="count(*)", worst="max(status)")
counts.sink("requests-out", ab.FileSink("out/requests", format="json"))


if __name__ == "__main__":
    pipeline = ab.run(flow, workers=2, directory="requests.state")
    pipeline.wait()
    for row in sorted(pipeline.state_table("counts").to_pylist(), key=lambda row: row["server"]):
        print(row)
