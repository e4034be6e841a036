"""Results that are known already: given to every unit that waits for them, at the cost of a look-up each."""

from __future__ import annotations

from sqlalchemy import text, update

from pipeline.domain.unit import Stage
from pipeline.store.reuse import reuse_units
from pipeline.store.schema import Run, Unit
from pipeline.store.session import Sessions
from tests.integration.seed import Seed

_UNITS = 300


def test_results_are_looked_up_once_a_unit_in_tables_without_statistics(sessions: Sessions) -> None:
    with sessions.begin() as session:  # Or they are taken at any moment, of a table that holds next to nothing.
        session.execute(text("alter table unit set (autovacuum_enabled = false)"))
        # Those of a test before this one outlive the emptying of its tables.
        session.execute(text("delete from pg_statistic where starelid = 'unit'::regclass"))
    seed = Seed(sessions)
    before, now = (seed.run(seed.document(uri), state="running") for uri in ("before.md", "now.md"))
    numbers = range(1, _UNITS + 1)
    seed.units(before, "retrieve", numbers, output={"context": "known"})
    seed.units(now, "retrieve", numbers, "pending")
    with sessions.begin() as session:
        session.execute(update(Unit).values(input_digest=text("ordinal::text")))
    with sessions.begin() as session:
        assert len(reuse_units(session, session.get_one(Run, now), Stage.RETRIEVE)) == _UNITS
        read = session.execute(
            text("select seq_tup_read + idx_tup_fetch from pg_stat_xact_user_tables where relname = 'unit'")
        ).scalar_one()
    # A unit is read to be found, its result is, and it is read again to be changed; a scan of all of them may come in.
    assert read < 10 * _UNITS
