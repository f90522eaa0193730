"""Streams in one process: subscribers, snapshots, the latest of each key, transactions, blocks.

    python examples/streams.py

A guided tour with a small shop whose orders several parties read.  It uses a temporary directory
through `fjord.open`; with `fjord.connect("fjord://127.0.0.1:17994")` the same code works on a
daemon.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable

import fjord


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="fjord-streams-") as directory:
        with fjord.open(directory) as db:
            orders = db.stream("orders")
            append_orders(orders)
            read_at_two_paces(orders)
            fail_in_the_middle(orders)
            bill_exactly_once(db)
            keep_the_latest(db)
            look_at_one_moment(db)
        with fjord.open(directory) as db:  # all of it was on disk
            go_on(db)
            go_cold(db)


def append_orders(orders: fjord.Stream) -> None:
    tell("Append three orders, two of them in one batch.")
    first = orders.append("1 book", key="alice")
    last = orders.append_many(["2 pens", "3 lamps"], keys=["bob", "alice"])
    print(f"   seqs {first} to {last}")


def read_at_two_paces(orders: fjord.Stream) -> None:
    tell("The warehouse reads all of them, the report only new ones.")
    warehouse = orders.subscriber("warehouse", start="beginning")
    report = orders.subscriber("report", start="end")
    batch = warehouse.read(100)
    show(batch)
    warehouse.ack(batch)
    print(f"   ahead of the report: {report.lag}, of the warehouse: {warehouse.lag}")


def fail_in_the_middle(orders: fjord.Stream) -> None:
    tell("A packer fails while it handles an order; the order comes again.")
    packer = orders.subscriber("packer")
    try:
        with packer.taking() as message:
            show([message] if message else [])
            raise OSError("no box is large enough")
    except OSError as error:
        print(f"   {error}; the next try:")
    with packer.taking() as message:
        show([message] if message else [])


def bill_exactly_once(db: fjord.Database) -> None:
    tell("Write the bills and ack the orders in one step: both or neither.")
    billing = db.stream("orders").subscriber("billing")
    batch = billing.read(100)
    with db.transaction() as tx:
        tx.stream("bills").append_many(["bill for " + str(one.value) for one in batch])
        tx.ack(billing, batch)
    show(db.stream("bills").subscriber("post").read(100))
    print(f"   ahead of billing: {billing.lag}")


def keep_the_latest(db: fjord.Database) -> None:
    tell("Stock changes all the time; a late reader needs only the newest value of each article.")
    stock = db.create_stream("stock", mode="latest")
    for left in (9, 8, 7):
        stock.append_many([left, left * 10], keys=["lamps", "pens"])
    print(f"   as a map: {dict(stock.items())}")
    shelf = stock.subscriber("shelf")
    show(shelf.read(100))
    stock.delete("lamps")
    show(shelf.read(100))


def look_at_one_moment(db: fjord.Database) -> None:
    tell("A snapshot does not change while others write.")
    with db.snapshot() as snap:
        db.stream("stock").append(0, key="pens")
        print("   pens then:", snap.stream("stock")["pens"], "now:", db.stream("stock")["pens"])


def go_on(db: fjord.Database) -> None:
    tell("The process restarts. All subscribers continue where they were.")
    orders = db.stream("orders")
    orders.append("4 chairs", key="bob")
    for name in ("warehouse", "report", "packer", "billing"):
        print(f"   {name}: {orders.subscriber(name).lag} ahead")


def go_cold(db: fjord.Database) -> None:
    tell("Old messages move to Parquet blocks; a reader from the beginning does not notice.")
    db.seal("orders")
    for block in db.blocks("orders"):
        print(f"   {block.name}: {block.rows} rows")
    show(db.stream("orders").subscriber("auditor").read(100))


def show(messages: Iterable[fjord.Message]) -> None:
    for one in messages:
        what = "is gone" if one.is_tombstone else one.value
        print(f"   {one.seq:4}  {one.key:6}", what)


def tell(text: str) -> None:
    print(f"\n{text}")


if __name__ == "__main__":
    main()
