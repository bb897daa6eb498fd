"""Two regions in a row: what is keyed by sensor is keyed anew by room. Run it in this directory.

The first region remembers of every sensor whether it is too warm, and tells only of changes; the
second counts them by room. The readings come from a function, in steps of 600 rows.
"""

import anabranch as ab

SENSORS = 12
PERIOD = 50


def readings(partition, start, end):
    """Sensor i swings around 20 degrees, by i degrees."""
    rows = range(start, end)
    sensors = [row % SENSORS for row in rows]
    warm = [(row // SENSORS) % PERIOD < PERIOD // 2 for row in rows]
    degrees = [20.0 + (s if w else -s) for s, w in zip(sensors, warm, strict=True)]
    return {"sensor": sensors, "degrees": degrees}


def changes(key, row, was_warm):
    is_warm = row.degrees >= 25.0
    if is_warm == was_warm or (was_warm is None and not is_warm):
        return None, is_warm  # nothing to tell
    return (key.sensor, is_warm, row.degrees), is_warm


flow = ab.Dataflow("sensors")
source = ab.GeneratorSource(readings, "sensor bigint, degrees double", rows_per_step=600, rows=2400)
alarms = (
    flow.source("readings", source)
    .key_distribute("by-sensor", "sensor")
    .stateful_map(
        "changes",
        changes,
        state="warm boolean",
        output="sensor bigint, warm boolean, degrees double",
    )
)
alarms.sink("alarms", ab.FileSink("out/alarms", "json"))
rooms = (
    alarms.where("warm")
    .key_distribute("by-room", room="sensor div 4")
    .aggregate("per-room", alarms="count(*)", hottest="max(degrees)")
)
rooms.sink("rooms", ab.FileSink("out/rooms", "json"))

pipeline = ab.run(flow, directory="sensors.state", workers=3)
status = pipeline.wait()
print(f"{status.step} steps")
for row in pipeline.state_table("per-room").sort_by("room").to_pylist():
    print(row)
