from __future__ import annotations

import math

import pytest

from worker.outage.script import DEFAULT_SCRIPT, Mode, Script


def test_phases_follow_each_other_and_the_last_one_lasts() -> None:
    assert [phase.mode for phase in map(DEFAULT_SCRIPT.at, (-1, 0, 5.9, 6, 13.9, 14, 23.9, 24, 1e6))] == [
        *[Mode.HEALTHY] * 3,
        *[Mode.BUSY] * 2,
        *[Mode.HANGING] * 2,
        *[Mode.HEALTHY] * 2,
    ]
    assert (DEFAULT_SCRIPT.recovers_s, DEFAULT_SCRIPT.phases[-1].ends_s) == (24, math.inf)


def test_a_script_survives_its_text() -> None:
    assert str(DEFAULT_SCRIPT) == "healthy:6,busy:8,hanging:10,healthy"
    assert Script.parse(str(DEFAULT_SCRIPT)) == DEFAULT_SCRIPT
    assert Script.parse("busy") == Script.of(last=Mode.BUSY)
    with pytest.raises(ValueError, match="asleep"):
        Script.parse("asleep")
