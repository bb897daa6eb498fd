"""The three products of each category that sell best, and who came and went among them.

An aggregate counts what a product sells; keyed anew by category, the counts make a ranking. One
operator gives two kinds of rows, told apart by a tag. Run it in this directory.
"""

from pathlib import Path

import anabranch as ab

BEST = 3
CATEGORIES = ["ink", "paper", "pens"]


def sales(partition, start, end):
    """Products p0 to p7 of each category; which of them sells well changes with time."""
    rows = range(start, end)
    return {
        "category": [CATEGORIES[row % 3] for row in rows],
        "product": [f"p{(row * row + row // 400 * row) % 31 % 8}" for row in rows],
        "units": [1 + (row * 7) % 5 for row in rows],
    }


class Ranking(ab.Process):
    """The best products of a category with what they sold.

    The others need not be kept: one that sells again comes with all that it ever sold.
    """

    best = ab.MapState("product string", "units bigint")

    def on_rows(self, key, rows):
        """Take the new counts of a step; tell of the changes among the best."""
        before = set(self.best)
        for row in rows:
            self.best[row.product] = row.units
        for product, _ in self.ranked()[BEST:]:
            del self.best[product]
        after = set(self.best)
        came = [("came", key.category, p, self.best[p], None) for p in sorted(after - before)]
        return came + [("went", key.category, p, None, None) for p in sorted(before - after)]

    def on_end(self, key):
        """Give the ranking."""
        return [
            ("rank", key.category, product, units, place)
            for place, (product, units) in enumerate(self.ranked(), start=1)
        ]

    def ranked(self):
        """The kept products, best first."""
        return sorted(self.best.items(), key=lambda item: (-item[1], item[0]))


flow = ab.Dataflow("top-n")
source = ab.GeneratorSource(
    sales, "category string, product string, units bigint", rows_per_step=400, rows=1600
)
tagged = (
    flow.source("sales", source)
    .key_distribute("by-product", "category", "product")
    .aggregate("sold", units="sum(units)")
    .key_distribute("by-category", "category")
    .process(
        "best",
        Ranking,
        output="tag string, category string, product string, units bigint, place bigint",
    )
)
outputs = tagged.split(ranking="tag = 'rank'", changes="true")
outputs["ranking"].select("category", "place", "product", "units").sink(
    "ranking", ab.FileSink("out/ranking", "json")
)
outputs["changes"].select("category", "tag", "product").sink(
    "changes", ab.FileSink("out/ranking-changes", "json")
)

ab.run(flow, directory="top-n.state").wait()
lines = sorted(
    f"step {int(file.name.split('-')[1])}: {line}"
    for name in ("ranking-changes", "ranking")
    for file in Path("out", name).glob("step-*.json")
    for line in file.read_text().splitlines()
)
print(*lines, sep="\n")
