"""The migrations make what the tables declare, from nothing, once, and refuse what they don't know."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, inspect, text

from pipeline.domain.errors import ConfigError, ServiceUnavailable
from pipeline.store import migrate, revisions
from pipeline.store.installation import read_installation
from pipeline.store.schema import Base
from pipeline.store.session import make_engine, make_sessions


@pytest.fixture
def empty(empty_database_url: str) -> Iterator[Engine]:
    engine = make_engine(empty_database_url, pool_size=10)
    yield engine
    engine.dispose()


def test_the_migrated_schema_is_the_declared_one(empty: Engine) -> None:
    migrate.upgrade(empty)

    assert migrate.schema_drift(empty) is None
    assert revisions.schema_revision(empty) == revisions.head_revision()


def test_drift_is_seen(empty: Engine) -> None:
    migrate.upgrade(empty)
    with empty.begin() as connection:
        connection.execute(text("alter table document drop column title"))

    drift = migrate.schema_drift(empty)

    assert drift is not None
    assert "title" in drift


def test_every_foreign_key_with_an_action_has_an_index_to_act_by(empty: Engine) -> None:
    migrate.upgrade(empty)
    looked_at = inspect(empty)
    missing = []
    for table in Base.metadata.tables:
        indexed = {index["column_names"][0] for index in looked_at.get_indexes(table) if index["column_names"]}
        indexed |= {unique["column_names"][0] for unique in looked_at.get_unique_constraints(table)}
        indexed |= set(looked_at.get_pk_constraint(table)["constrained_columns"][:1])
        missing += [
            f"{table}.{key['constrained_columns'][0]}"
            for key in looked_at.get_foreign_keys(table)
            if key["options"].get("ondelete")
            and key["constrained_columns"][0] not in indexed
            # Whole collections are not deleted one by one.
            and key["referred_table"] != "collection"
        ]
    assert missing == []


def test_upgrades_at_once_wait_for_each_other(empty: Engine) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: migrate.upgrade(empty), range(4)))

    with make_sessions(empty)() as session:
        assert len(read_installation(session).fingerprint_key) == 32


def test_an_empty_database_names_the_command_that_helps(empty: Engine) -> None:
    with pytest.raises(ServiceUnavailable, match="tidegate db upgrade"):
        revisions.check_schema(empty)


def test_a_newer_schema_is_refused_by_check_and_upgrade(empty: Engine) -> None:
    migrate.upgrade(empty)
    with empty.begin() as connection:
        connection.execute(text("update alembic_version set version_num = '9999'"))

    with pytest.raises(ConfigError, match="'9999'"):
        revisions.check_schema(empty)
    with pytest.raises(ConfigError, match="'9999'"):
        migrate.upgrade(empty)


def test_a_downgrade_leaves_nothing_and_the_way_up_is_open_again(empty: Engine) -> None:
    migrate.upgrade(empty)
    with empty.connect() as connection:
        config = Config()
        config.set_main_option("script_location", str(revisions.SCRIPTS))
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
        connection.commit()

    assert inspect(empty).get_table_names() == ["alembic_version"]
    migrate.upgrade(empty)
    revisions.check_schema(empty)


def test_alembic_and_the_check_that_does_without_it_agree_on_the_newest_revision() -> None:
    assert ScriptDirectory(str(revisions.SCRIPTS)).get_current_head() == revisions.head_revision()
