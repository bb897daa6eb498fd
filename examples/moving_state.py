"""First visits, with state in a form of its own that moves between workers while rows flow.

Which pages a user has seen is one bit for each page, in bytes that ``save`` and ``load`` know. The
pipeline goes from two workers to four and then to one; on its way to another worker the bits are
compressed. Run it in this directory.
"""

import zlib

import anabranch as ab

USERS, PAGES, PARTITIONS = 500, 4000, 4


def visits(partition, start, end):
    """Visit number i of a partition: a user and a page that follow from both."""
    numbers = [(i * PARTITIONS + partition) * 2_654_435_761 % 2**32 for i in range(start, end)]
    return {"user": [n % USERS for n in numbers], "page": [n // USERS % PAGES for n in numbers]}


class FirstVisits(ab.Process):
    """The pages that each user has seen, outside of all handles."""

    def __init__(self):
        """Know nobody yet: what is needed comes by load or by take_state."""
        self.seen = {}

    def save(self, key):
        """Give the bits as they are."""
        return b"-" + self.bits(key)

    def load(self, key, saved):
        """Take the bits, in either form."""
        bits = zlib.decompress(saved[1:]) if saved[:1] == b"z" else saved[1:]
        self.seen[key] = int.from_bytes(bits, "little")

    def on_rows(self, key, rows):
        """Give the visits to pages that are new to the user."""
        for row in rows:
            seen = self.seen.get(key, 0)
            if not seen >> row.page & 1:
                self.seen[key] = seen | 1 << row.page
                yield key.user, row.page

    def on_collect(self, leaving):
        """Users go to another worker after this step: make their bits small for the way."""
        for key in leaving.keys:
            leaving.add_state(key, b"z" + zlib.compress(self.bits(key)))

    def on_acquire(self, arriving):
        """Users have come: take their bits before the first row."""
        for key, saved in (arriving.take_state() or {}).items():
            self.load(key, saved)

    def on_interrogate(self, register):
        """Say whom we know of; it is weighed when bins are shared anew."""
        register.add_keys(self.seen)

    def bits(self, key):
        """The bits of a user as bytes."""
        return self.seen.get(key, 0).to_bytes(PAGES // 8, "little")


flow = ab.Dataflow("first-visits")
source = ab.GeneratorSource(visits, "user int, page int", PARTITIONS, rows_per_step=2000)
first = (
    flow.source("visits", source)
    .key_distribute("by-user", "user")
    .process("first", FirstVisits, output="user int, page int")
)
first.sink("first-visits", ab.FileSink("out/first-visits", "json"))

pipeline = ab.run(flow, workers=2, directory="moving.state", bins=64)
while pipeline.status().step < 2:
    pipeline.wait(0.1)
for workers in (4, 1):
    pipeline.scale(workers)
    while pipeline.status().rescale is not None:
        pipeline.wait(0.1)
    regions = {region.region: len(set(region.bins)) for region in pipeline.status().regions}
    print(f"asked for {workers} workers:", regions)
status = pipeline.shutdown()
for rescale in pipeline.scale_history():
    print(f"{rescale.outcome}: {rescale.moved.bins} bins have moved")
