"""Kill switches: targets that somebody disabled. Here is their truth; the registry caches it."""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from pipeline.store.schema import TargetSwitch

__all__ = ["disabled_targets", "set_switch"]


def disabled_targets(session: Session) -> frozenset[str]:
    """The keys of the targets that are switched off."""
    return frozenset(session.scalars(select(TargetSwitch.target).where(TargetSwitch.disabled)))


def set_switch(session: Session, target: str, *, disabled: bool) -> None:
    """Switch a target, given by its key, off or on."""
    statement = insert(TargetSwitch).values(target=target, disabled=disabled)
    changed = {"disabled": disabled, "changed_at": func.now()}
    session.execute(statement.on_conflict_do_update(index_elements=["target"], set_=changed))
