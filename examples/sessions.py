"""Sessions: the clicks of a user with less than half an hour between each and the next.

Time is the clicks' own. A session is over when a click comes half an hour or more after its last
one, or when the input ends. Run it in this directory.
"""

from datetime import datetime, timedelta
from pathlib import Path

import anabranch as ab

GAP = timedelta(minutes=30)
MORNING = datetime(2026, 3, 2, 9, 0)  # noqa: DTZ001 - a time without a zone, as in the clicks
USERS = ["ada", "bob", "cyd"]
PAGES = ["/", "/search", "/item", "/cart"]


def clicks(partition, start, end):
    """Users click in turn: each at intervals of their own, with an hour's rest now and then."""
    rows = [(row % len(USERS), row // len(USERS)) for row in range(start, end)]
    return {
        "user": [USERS[user] for user, _ in rows],
        "page": [PAGES[(user + n * n) % len(PAGES)] for user, n in rows],
        "at": [
            MORNING + timedelta(minutes=n * (5 + 2 * user) + 60 * (n // (6 + user)))
            for user, n in rows
        ],
    }


class Sessions(ab.Process):
    """What is known of a user's session that is not over yet."""

    span = ab.ValueState("first timestamp_ntz, last timestamp_ntz")
    pages = ab.ListState("page string")

    def on_rows(self, key, rows):
        """Take the user's clicks of a step, in order; give the sessions that they end."""
        done = []
        for row in rows:
            span = self.span.get()
            if span is not None and row.at - span.last >= GAP:
                done.append(self.finish(key))
                span = None
            self.span.set((row.at if span is None else span.first, row.at))
            self.pages.append(row.page)
        return done

    def on_end(self, key):
        """Give the session that the end of the input has cut off."""
        return self.finish(key)

    def finish(self, key):
        """Forget the session; give it as a row."""
        span, pages = self.span.get(), self.pages.get()
        self.span.clear()
        self.pages.clear()
        return (key.user, span.first, span.last, len(pages), pages[-1])


flow = ab.Dataflow("sessions")
source = ab.GeneratorSource(
    clicks, "user string, page string, at timestamp_ntz", rows_per_step=20, rows=60
)
sessions = (
    flow.source("clicks", source)
    .key_distribute("by-user", "user")
    .process(
        "sessions",
        Sessions,
        output="user string, first timestamp_ntz, last timestamp_ntz, clicks bigint, left string",
    )
)
sessions.sink("done", ab.FileSink("out/sessions", "json"))

ab.run(flow, directory="sessions.state").wait()
files = Path("out/sessions").glob("step-*.json")
print(*sorted(line for file in files for line in file.read_text().splitlines()), sep="\n")
