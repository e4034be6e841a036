"""The readers' fixtures, which the parse child's tests use too."""

from __future__ import annotations

from tests.unit.documents.conftest import make_job

__all__ = ["make_job"]
