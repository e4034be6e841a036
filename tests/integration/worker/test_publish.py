"""Publishing to a broker that is away."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from pipeline.domain.errors import ServiceUnavailable
from pipeline.domain.unit import Stage
from pipeline.store.window import Slice
from worker.app import make_app
from worker.publish import SlicePublisher


def test_a_broker_that_is_away_is_a_service_that_is_unavailable(tmp_path: Path) -> None:
    app = make_app(f"redis+socket://{tmp_path}/nobody.sock?virtual_host=0", "t:")
    with pytest.raises(ServiceUnavailable, match="Redis does not take messages"):
        SlicePublisher(app)([Slice(12, UUID(int=7), Stage.PARSE, (0,), wake=17)])
    app.close()
