"""A unit's and a run's state are written in one place: read from the sources, so that no other way can be added."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.domain.run import ACTIVE_RUN_STATES, ENDED_RUN_STATES, RUN_MOVES, RunState
from pipeline.domain.unit import OPEN_UNIT_STATES, UNIT_MOVES, UnitState

ROOT = Path(__file__).parents[3]
MOVES = ROOT / "pipeline" / "store" / "moves.py"
_TABLES = {"Unit", "Run"}
_SQL = re.compile(
    r"\b(?:update\s+(?:only\s+)?(?:unit|run)\b[^;]*?\bset\b(?:(?!\bwhere\b)[^;])*?\bstate\s*="
    r"|insert\s+into\s+(?:unit|run)\s*\([^)]*\bstate\b)",
    re.IGNORECASE,
)


def writes(source: str) -> Iterator[str]:
    """Every place in a module's source that gives a unit or a run a state, or could."""
    for node in ast.walk(ast.parse(source)):
        if (what := _sql(node) or _statement(node) or _row(node) or _attribute(node)) is not None:
            yield f"line {getattr(node, 'lineno', 0)}: {what}"


def _sql(node: ast.AST) -> str | None:
    return "SQL" if isinstance(node, ast.Constant) and _SQL.search(str(node.value)) else None


def _statement(node: ast.AST) -> str | None:
    match node:
        case ast.Call(func=ast.Attribute(attr="values"), args=args, keywords=keywords) if _of_a_ledger_row(node):
            # A dict that is built elsewhere can't be read here, so it may not be used.
            return "values" if args or _may_hold_a_state(keywords) else None
        case _:
            return None


def _row(node: ast.AST) -> str | None:
    match node:
        case ast.Call(func=ast.Name(id=name), keywords=keywords) if name in _TABLES:
            return "a row with a state" if _may_hold_a_state(keywords) else None
        case ast.Call(func=ast.Name(id="setattr"), args=[_, ast.Constant(value="state"), _]):
            return "setattr"
        case _:
            return None


def _attribute(node: ast.AST) -> str | None:
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign | ast.AugAssign):
        targets = [node.target]
    written = (target for target in targets if isinstance(target, ast.Attribute) and target.attr == "state")
    return "an attribute" if any(not _is_self(target.value) for target in written) else None


def _may_hold_a_state(keywords: list[ast.keyword]) -> bool:
    return any(keyword.arg in (None, "state") for keyword in keywords)


def _of_a_ledger_row(call: ast.Call) -> bool:
    """Whether a chain of calls begins with ``update(Unit)`` or the like; a table that isn't named counts."""
    for node in ast.walk(call.func):
        match node:
            case ast.Call(func=ast.Name(id="update" | "insert" | "pg_insert"), args=[table, *_]):
                return not (isinstance(table, ast.Name) and table.id[:1].isupper() and table.id not in _TABLES)
            case _:
                pass
    return False


def _is_self(owner: ast.expr) -> bool:
    return isinstance(owner, ast.Name) and owner.id == "self"


def _names_a_table(source: str) -> bool:
    return bool(re.search(r"from pipeline\.store\.(schema|moves) import", source)) or bool(
        re.search(r"\b(?:update|insert\s+into)\s+(?:unit|run)\b", source, re.IGNORECASE)
    )


def test_a_state_is_written_by_the_moves_alone() -> None:
    found = []
    for folder in ("pipeline", "worker", "migrations"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            source = path.read_text(encoding="utf-8")
            if path != MOVES and _names_a_table(source):
                found += [f"{path.relative_to(ROOT)}: {write}" for write in writes(source)]

    assert found == [], "write states with pipeline.store.moves, which knows what may follow what"


@pytest.mark.parametrize(
    "source",
    [
        'update(Unit).where(Unit.id == 1).values(state="done")',
        "session.execute(update(Run).values(**values).where(Run.id == 1).returning(Run.id))",
        'update(table).where(where).values({"state": "done"})',
        'insert(Unit).values(run_id=1, state="done")',
        "text(\"update unit set calls = 0, state = 'done' where id = 1\")",
        'text("""\n  UPDATE run\n  SET state = :state\n  """)',
        "text(\"insert into unit (run_id, state) values (1, 'done')\")",
        'Unit(run_id=1, state="done")',
        'run.state = "done"',
        'setattr(run, "state", "done")',
    ],
)
def test_the_reader_finds_every_way_to_write_a_state(source: str) -> None:
    assert len(list(writes(source))) == 1


@pytest.mark.parametrize(
    "source",
    [
        'update(Unit).where(Unit.state == "parked").values(resume_at=None)',
        "text(\"update unit set dispatched_at = null where state = 'pending'\")",
        "text(\"select state from unit where state = 'done'\")",
        'update(Attempt).where(Attempt.id == 1).values(**{"outcome": "lost"})',
        "self.state = begin()",
    ],
)
def test_the_reader_leaves_alone_what_writes_none(source: str) -> None:
    assert list(writes(source)) == []


def test_what_has_ended_is_left_by_no_move() -> None:
    assert {state for state, after in UNIT_MOVES.items() if not after} == set(UnitState) - OPEN_UNIT_STATES
    assert {state for state, after in RUN_MOVES.items() if not after} == ENDED_RUN_STATES
    assert set(RunState) == ACTIVE_RUN_STATES | ENDED_RUN_STATES
    assert set(UNIT_MOVES) == set(UnitState)
    assert set(RUN_MOVES) == set(RunState)
