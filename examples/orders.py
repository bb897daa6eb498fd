"""A running total per customer: the program of the README. Run it in this directory."""

import anabranch as ab

flow = ab.Dataflow("orders")
source = ab.FileSource("in", "json", "customer string, amount double", watch=False)


def add(key, row, total):  # called for every order; total is None when the customer is new
    total = (total or 0.0) + row.amount
    return (key.customer, total), total  # what to emit, what to remember


totals = (
    flow.source("orders", source)
    .where("amount > 0")  # Spark SQL
    .key_distribute("by-customer", "customer")  # a region: state is kept by customer
    .stateful_map(
        "running-total", add, state="total double", output="customer string, total double"
    )
)
totals.sink("totals", ab.FileSink("out/totals", "json"))

pipeline = ab.run(flow, directory="orders.state")
pipeline.wait()
question = 'select customer, total from "running-total" order by customer'
for row in pipeline.query(question).to_pylist():
    print(row)
