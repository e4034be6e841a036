"""What collections have spent on model calls, which their budgets are held against.

A call is added as it ends, by the statement that ends its attempt (``pipeline.store.attempt_sink``): once, and whether
its answer was good or not. A call whose worker died under it is not, for nobody heard what it cost.
"""

from __future__ import annotations

from pipeline.store.reader import Reader

__all__ = ["spend_by_collection", "spent_usd"]


def spent_usd(reader: Reader, collection: str) -> float:
    """What a collection has spent so far, in US dollars."""
    return sum(spend_by_collection(reader, collection).values())


def spend_by_collection(reader: Reader, collection: str | None = None) -> dict[str, float]:
    """The same for each that has spent anything, or for one."""
    return {row.name: row.cost_usd for row in reader.rows(_SPEND, {"collection": collection})}


_SPEND = """
    select collection.name, sum(spend.cost_usd)::float as cost_usd
    from spend join collection on collection.id = spend.collection_id
    where cast(%(collection)s as text) is null or collection.name = %(collection)s
    group by collection.name order by collection.name
"""
