"""Attachments of Outlook messages, from a file that is whole and from ones that are not."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from pipeline.documents import media
from pipeline.documents.compound import Compound
from pipeline.documents.outlook import may_have_attachments, msg_members
from pipeline.domain.errors import RejectedInput
from tests.unit.documents.conftest import MakeJob

MESSAGE = (Path(__file__).parents[2] / "fixtures" / "message.msg").read_bytes()


def members(make_job: MakeJob, content: bytes) -> dict[str, bytes]:
    found = msg_members(make_job(content, media.MSG))
    return {one.name: b"".join(one.pieces) for one in found if one is not None}


def test_an_attachment_comes_out_as_it_went_in(make_job: MakeJob) -> None:
    assert may_have_attachments(MESSAGE)
    assert members(make_job, MESSAGE) == {"turns.csv": b"valve,turns\nseven,14\n"}


def test_a_hidden_attachment_is_left_out(make_job: MakeJob) -> None:
    # Its last property becomes the one that hides it.
    row = struct.pack("<IIq", 0x37050003, 6, 1)
    assert MESSAGE.count(row) == 1
    hidden = MESSAGE.replace(row, struct.pack("<IIq", 0x7FFE000B, 6, 1))
    assert members(make_job, hidden) == {}


def test_a_long_stream_lies_in_sectors_of_its_own() -> None:
    file = Compound((Path(__file__).parents[2] / "fixtures" / "valves.doc").read_bytes())
    words = file.root.items["WordDocument"]
    content = b"".join(file.read(words))
    assert len(content) == words.size_bytes >= 4096
    assert content.startswith(b"\xec\xa5")


@pytest.mark.parametrize("at", [44, 48, 60, 68, 76])
@pytest.mark.parametrize("value", [0, 1, 5, 0x00FFFFFF])
def test_chains_that_lead_nowhere_or_in_circles_are_corrupt_and_no_hang(make_job: MakeJob, at: int, value: int) -> None:
    bent = bytearray(MESSAGE)
    struct.pack_into("<I", bent, at, value)
    _reads_or_rejects(make_job, bytes(bent))


def test_random_damage_is_corrupt_or_harmless(make_job: MakeJob) -> None:
    draw = random.Random(7)
    for _ in range(300):
        bent = bytearray(MESSAGE)
        for _ in range(draw.randint(1, 8)):
            bent[draw.randrange(8, len(bent))] = draw.choice((0, 1, 0x7F, 0xFF, draw.randrange(256)))
        _reads_or_rejects(make_job, bytes(bent[: draw.choice((len(bent), draw.randrange(len(bent))))]))


def _reads_or_rejects(make_job: MakeJob, content: bytes) -> None:
    try:
        members(make_job, content)
    except RejectedInput as error:
        if error.kind != "corrupt":
            raise
