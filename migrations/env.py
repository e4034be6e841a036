"""Alembic's entry: runs on the connection that ``pipeline.store.migrate`` hands in.

For ``alembic revision`` during development: ``alembic -x url=postgresql://… revision --autogenerate``.
"""

from __future__ import annotations

from typing import Any

from alembic import context
from sqlalchemy import Connection

from pipeline.store.schema import Base
from pipeline.store.session import make_engine

SPACE_INDEX_PREFIX = "hnsw_space_"


def _is_ours(thing: Any, name: str | None, kind: str, reflected: bool, compare_to: Any) -> bool:
    # Indexes of embedding spaces are made with the spaces, at run time.
    return not (kind == "index" and reflected and name is not None and name.startswith(SPACE_INDEX_PREFIX))


def _run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        include_object=_is_ours,
        compare_server_default=True,
        transaction_per_migration=True,
    )
    with context.begin_transaction():
        context.run_migrations()


if context.is_offline_mode():
    context.configure(
        dialect_name="postgresql", target_metadata=Base.metadata, literal_binds=True, transaction_per_migration=True
    )
    with context.begin_transaction():
        context.run_migrations()
else:
    given = context.config.attributes.get("connection")
    if isinstance(given, Connection):
        _run(given)
    else:
        engine = make_engine(context.get_x_argument(as_dictionary=True)["url"], pool_size=1)
        with engine.connect() as own:
            _run(own)
        engine.dispose()
