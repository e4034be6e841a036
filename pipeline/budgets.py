"""What collections have spent on model calls, beside what they may."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pipeline.store.reader import Reads
from pipeline.store.spend import spend_by_collection

__all__ = ["BudgetStanding", "budget_standing"]


@dataclass(frozen=True, slots=True)
class BudgetStanding:
    """One collection.

    Attributes:
        budget_usd: None where it may spend what it likes.
    """

    collection: str
    spent_usd: float
    budget_usd: float | None

    @property
    def is_used_up(self) -> bool:
        return self.budget_usd is not None and self.spent_usd >= self.budget_usd

    @property
    def note(self) -> str:
        """What a person should know; empty while there is something left."""
        if not self.is_used_up:
            return ""
        return (
            f"{self.collection} has spent ${self.spent_usd:,.2f} of its budget of ${self.budget_usd:,.2f}: only free"
            f" targets are asked until collections.{self.collection}.budget_usd is raised and the stack restarted"
        )

    def to_json(self) -> dict[str, Any]:
        return {"collection": self.collection, "spent_usd": self.spent_usd, "budget_usd": self.budget_usd}


def budget_standing(
    reads: Reads, budget_usd: Callable[[str], float | None], collection: str | None = None
) -> list[BudgetStanding]:
    """How collections stand; those that have spent nothing are left out.

    Args:
        budget_usd: A collection's bound, asked only where something was spent: it takes a configuration to say.
        collection: Only that one's.

    Raises:
        ServiceUnavailable: Postgres is away.
    """
    with reads() as reader:
        spent = spend_by_collection(reader, collection)
    return [BudgetStanding(name, cost_usd, budget_usd(name)) for name, cost_usd in spent.items()]
