"""What an answer cost, in US dollars."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pipeline.domain.call import Usage
from pipeline.failover.target import Target
from pipeline.providers.lenient_json import JsonError, loads

__all__ = ["usage_of"]

_TABLE = "model_prices_and_context_window_backup.json"


def usage_of(target: Target, tokens: tuple[int, int] | None) -> Usage | None:
    """Token counts with their cost: by the target's own price, else by the table that litellm ships.

    A model on a server of one's own (``openai/…`` with a ``base_url``) is in no table: it costs what its price says, or
    nothing.
    """
    if tokens is None:
        return None
    tokens_in, tokens_out = tokens
    rate_in, rate_out = target.price.input_per_mtok, target.price.output_per_mtok
    if target.is_listed and (rate_in is None or rate_out is None):
        table_in, table_out = _table_rates(target.model)
        rate_in = table_in if rate_in is None else rate_in
        rate_out = table_out if rate_out is None else rate_out
    cost = (tokens_in * (rate_in or 0.0) + tokens_out * (rate_out or 0.0)) / 1_000_000
    return Usage(tokens_in, tokens_out, cost)


def _table_rates(model: str) -> tuple[float, float]:
    """Dollars per million tokens in and out; zeros for a model that the table does not know."""
    table = _table()
    return table.get(model) or table.get(model.partition("/")[2]) or (0.0, 0.0)


@cache
def _table() -> Mapping[str, tuple[float, float]]:
    """Rates by model, read from litellm's package folder without importing litellm (5 s and 200 MB for one file)."""
    found = importlib.util.find_spec("litellm")
    for folder in (found.submodule_search_locations or ()) if found else ():
        try:
            table = loads((Path(folder) / _TABLE).read_bytes())
        except (OSError, JsonError):
            continue
        return {model: _rates(entry) for model, entry in table.items() if isinstance(entry, Mapping)}
    return {}


def _rates(entry: Mapping[str, Any]) -> tuple[float, float]:
    rate_in, rate_out = entry.get("input_cost_per_token"), entry.get("output_cost_per_token")
    return _per_mtok(rate_in), _per_mtok(rate_out)


def _per_mtok(rate: object) -> float:
    return float(rate) * 1_000_000 if isinstance(rate, int | float) else 0.0
