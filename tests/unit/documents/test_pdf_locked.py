"""Encrypted PDFs: those that open for everybody are read, the others ask for a password, and take the right one."""

from __future__ import annotations

import hashlib
import re

import pytest

from examples.make import handbook_pdf
from pipeline.documents import media
from pipeline.documents.pdf import read
from pipeline.domain.document import ParsedPage
from pipeline.domain.errors import RejectedInput
from tests.unit.documents.conftest import MakeJob

_PAD = bytes.fromhex("28bf4e5e4e758a4164004e56fffa01082e2e00b6d0683e802f0ca9fe6453697a")
_ID = bytes(range(16))
_OBJECT = re.compile(rb"(\d+) 0 obj\n(.*?)\nendobj\n", re.DOTALL)
_STREAM = re.compile(rb"\nstream\n(.*)\nendstream", re.DOTALL)


def rc4(key: bytes, data: bytes) -> bytes:
    state, j = list(range(256)), 0
    for i in range(256):
        j = (j + state[i] + key[i % len(key)]) % 256
        state[i], state[j] = state[j], state[i]
    out, i, j = bytearray(), 0, 0
    for byte in data:
        i = (i + 1) % 256
        j = (j + state[i]) % 256
        state[i], state[j] = state[j], state[i]
        out.append(byte ^ state[(state[i] + state[j]) % 256])
    return bytes(out)


def padded(password: str) -> bytes:
    return (password.encode("latin-1") + _PAD)[:32]


def md5(data: bytes) -> bytes:
    return hashlib.md5(data).digest()  # noqa: S324 -- what the format asks for


def locked(user: str, owner: str, allowed: int = -4) -> bytes:
    """The handbook under the standard handler's first revision (40 bits of RC4)."""
    owner_entry = rc4(md5(padded(owner))[:5], padded(user))
    permissions = (allowed & 0xFFFFFFFF).to_bytes(4, "little")
    key = md5(padded(user) + owner_entry + permissions + _ID)[:5]
    plain = handbook_pdf()
    objects = []
    for match in _OBJECT.finditer(plain):
        number, body = int(match[1]), match[2]
        own = md5(key + number.to_bytes(3, "little") + bytes(2))[:10]
        if found := _STREAM.search(body):
            body = body[: found.start(1)] + rc4(own, found[1]) + body[found.end(1) :]
        body = re.sub(rb"\(([^()]*)\)", lambda held, own=own: b"<" + rc4(own, held[1]).hex().encode() + b">", body)
        objects.append(b"%d 0 obj\n%s\nendobj\n" % (number, body))
    encrypt = (
        f"<< /Filter /Standard /V 1 /R 2 /P {allowed} /O <{owner_entry.hex()}> /U <{rc4(key, _PAD).hex()}> >>".encode()
    )
    top = len(objects) + 1
    trailer = f"trailer << /Root 1 0 R /Size {top + 1} /Encrypt {top} 0 R /ID [<{_ID.hex()}> <{_ID.hex()}>] >>".encode()
    return b"%PDF-1.4\n" + b"".join(objects) + b"%d 0 obj\n%s\nendobj\n" % (top, encrypt) + trailer + b"\n%%EOF"


def text(make_job: MakeJob, content: bytes, password: str | None = None) -> str:
    job = make_job(content, media.PDF, password=password)
    return "\n".join(event.text for event in read(job) if isinstance(event, ParsedPage))


@pytest.mark.parametrize("allowed", [-4, -64], ids=["all is allowed", "nothing is allowed"])
def test_what_is_locked_for_its_owner_or_with_an_empty_password_is_read(make_job: MakeJob, allowed: int) -> None:
    assert "Tide Gate Handbook" in text(make_job, locked("", "owner's own", allowed))


def test_what_is_locked_with_a_password_asks_for_it(make_job: MakeJob) -> None:
    with pytest.raises(RejectedInput, match="password_required: it is locked"):
        text(make_job, locked("sesame", "owner"))


def test_another_password_does_not_open_it(make_job: MakeJob) -> None:
    with pytest.raises(RejectedInput, match="password_required: the password does not open it"):
        text(make_job, locked("sesame", "owner"), "simsim")


@pytest.mark.parametrize("password", ["sesame", "owner"])
def test_the_users_and_the_owners_password_open_it(make_job: MakeJob, password: str) -> None:
    assert "Tide Gate Handbook" in text(make_job, locked("sesame", "owner"), password)


def test_a_password_that_is_not_needed_does_no_harm(make_job: MakeJob) -> None:
    assert "Tide Gate Handbook" in text(make_job, handbook_pdf(), "sesame")
