"""What comes out of containers: whole members, reasons for the others, and never more than the limits allow."""

from __future__ import annotations

import os
import random
import struct
import tarfile
import zipfile
from pathlib import Path

import pytest

from pipeline.documents import media, unpack
from pipeline.documents.job import Ended, Member
from pipeline.domain.document import Limits
from pipeline.domain.errors import RejectedInput
from tests.unit.documents.archives import lying_zip, raw_zip, tarred, zipped
from tests.unit.documents.conftest import MakeJob

SMALL = Limits(max_bytes=1000, max_archive_bytes=5000, max_members=5)


class Unpacked:
    def __init__(self, make_job: MakeJob, content: bytes, media_type: str = media.ZIP, limits: Limits = SMALL) -> None:
        self.job = make_job(content, media_type, limits=limits)
        for left in self.job.workdir.iterdir():
            left.unlink()
        self.members: list[Member] = []
        self.error: RejectedInput | None = None
        self.ended = False
        try:
            for event in unpack.read(self.job):
                if isinstance(event, Member):
                    self.members.append(event)
                else:
                    assert isinstance(event, Ended)
                    self.ended = True
        except RejectedInput as error:
            self.error = error

    @property
    def contents(self) -> dict[str, bytes | str]:
        """By name the bytes of each, or what befell it."""
        return {
            one.name: one.problem[1] if one.problem else (self.job.workdir / f"{one.number}{one.suffix}").read_bytes()
            for one in self.members
        }

    @property
    def files(self) -> list[str]:
        return sorted(path.name for path in self.job.workdir.iterdir())


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_a_zips_files_come_out_as_they_went_in(make_job: MakeJob, method: int) -> None:
    noise = os.urandom(400)
    got = Unpacked(make_job, zipped(("a.txt", b"A" * 900), ("sub/b.bin", noise), ("sub/", b""), method=method))
    assert got.contents == {"a.txt": b"A" * 900, "sub/b.bin": noise}
    assert got.ended


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_a_tars_files_come_out_as_they_went_in(make_job: MakeJob, mode: str) -> None:
    folder = tarfile.TarInfo("sub")
    folder.type = tarfile.DIRTYPE
    archive = tarred((folder, b""), ("./sub/a.txt", b"A"), ("b.txt", b""), mode=mode)
    got = Unpacked(make_job, archive, media.TAR, Limits())
    assert got.contents == {"sub/a.txt": b"A", "b.txt": b""}


def test_bytes_before_an_archive_and_a_comment_after_it_do_no_harm(make_job: MakeJob, tmp_path: Path) -> None:
    path = tmp_path / "commented.zip"
    path.write_bytes(b"#!/bin/sh\nexit\n" + zipped(("a.txt", b"A")))
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = b"PK\x05\x06 and some words"
    assert Unpacked(make_job, path.read_bytes()).contents == {"a.txt": b"A"}


def test_an_archive_of_the_long_form_is_read(make_job: MakeJob, tmp_path: Path) -> None:
    path = tmp_path / "long.zip"
    with zipfile.ZipFile(path, "w") as archive, archive.open("a.txt", "w", force_zip64=True) as entry:
        entry.write(b"A")
    assert Unpacked(make_job, path.read_bytes()).contents == {"a.txt": b"A"}


@pytest.mark.parametrize("name", ["../up.txt", "a/../../b.txt", "/etc/passwd", "C:/boot.ini", "C:\\boot.ini", "..\\x"])
def test_a_name_that_leads_out_is_rejected_and_the_others_are_taken(make_job: MakeJob, name: str) -> None:
    got = Unpacked(make_job, zipped((name, b"bad"), ("good.txt", b"good")))
    assert [bool(one.problem) for one in got.members] == [True, False]
    assert got.members[0].problem is not None
    assert got.members[0].problem[0] == "unsafe"
    assert got.files == ["2.txt"]


def test_links_and_devices_are_rejected(make_job: MakeJob) -> None:
    got = Unpacked(make_job, raw_zip((b"link", b"/etc/passwd"), mode=0o120777))
    assert got.contents == {"link": "it is a symbolic link"}
    assert got.files == []
    entries = []
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE):
        entry = tarfile.TarInfo(f"kind-{kind.decode()}")
        entry.type, entry.linkname = kind, "/etc/passwd"
        entries.append((entry, b""))
    got = Unpacked(make_job, tarred(*entries), media.TAR, Limits())
    assert [one.problem and one.problem[0] for one in got.members] == ["unsafe"] * 4
    assert got.files == []


def test_encrypted_members_are_rejected_by_themselves(make_job: MakeJob) -> None:
    got = Unpacked(make_job, raw_zip((b"a.txt", b"A"), flags=1))
    assert got.members[0].problem is not None
    assert got.members[0].problem[0] == "password_required"


@pytest.mark.parametrize(("content", "declared"), [(b"A" * 900, 10), (b"A" * 10, 900), (b"A" * 3_000_000, 999)])
def test_a_header_that_lies_about_its_size_is_corrupt(make_job: MakeJob, content: bytes, declared: int) -> None:
    got = Unpacked(make_job, lying_zip(content, declared))
    assert got.members[0].problem is not None
    assert got.members[0].problem[0] == "corrupt"
    assert got.files == []


def test_a_member_above_max_bytes_is_rejected_and_the_others_are_taken(make_job: MakeJob) -> None:
    for content, kind in (
        (zipped(("big", b"A" * 1001), ("small", b"s")), media.ZIP),
        (tarred(("big", b"A" * 1001), ("small", b"s")), media.TAR),
    ):
        got = Unpacked(make_job, content, kind, Limits(max_bytes=1000))
        assert got.contents == {"big": "it is above limits.max_bytes, which is 1,000", "small": b"s"}


def test_what_is_declared_above_the_total_is_refused_before_anything_comes_out(make_job: MakeJob) -> None:
    got = Unpacked(make_job, zipped(*[(f"{n}", b"A" * 999) for n in range(5)]), limits=Limits(max_archive_bytes=4000))
    assert got.error is not None
    assert got.error.kind == "unsafe"
    assert got.files == []


def test_a_bomb_is_refused_by_its_ratio(make_job: MakeJob) -> None:
    bomb = zipped(*[(f"{n}", bytes(3_000_000)) for n in range(12)])
    got = Unpacked(make_job, bomb, limits=Limits(max_inflate_ratio=20))
    assert got.error is not None
    assert "max_inflate_ratio = 20" in got.error.detail
    assert got.files == []
    tar = tarred(*[(f"{n}", bytes(3_000_000)) for n in range(12)], mode="w:gz")
    got = Unpacked(make_job, tar, media.TAR, limits=Limits(max_inflate_ratio=20))
    assert got.error is not None
    assert got.error.kind == "unsafe"


def test_what_a_compressed_tar_skips_is_counted_as_well(make_job: MakeJob) -> None:
    # The member is too large by its header, so that it is skipped and never written.
    tar = tarred(("big", bytes(6000)), ("small", b"s"), mode="w:gz")
    got = Unpacked(make_job, tar, media.TAR)
    assert got.error is not None
    assert "max_archive_bytes" in got.error.detail


def test_entries_that_share_bytes_are_refused(make_job: MakeJob) -> None:
    got = Unpacked(make_job, raw_zip((b"a", os.urandom(900)), copies=4), limits=Limits())
    assert got.error is not None
    assert got.error.detail == "its entries overlap"


@pytest.mark.parametrize("kind", [media.ZIP, media.TAR])
def test_members_are_counted_folders_included(make_job: MakeJob, kind: str) -> None:
    entries = [(f"{n}/", b"") for n in range(6)]
    got = Unpacked(make_job, zipped(*entries) if kind == media.ZIP else tarred(*entries), kind, Limits(max_members=5))
    assert got.error is not None
    assert "max_members" in got.error.detail
    assert len(got.members) == (0 if kind == media.ZIP else 5)


def test_names_that_are_not_utf8_are_read_as_their_makers_wrote_them(make_job: MakeJob) -> None:
    got = Unpacked(make_job, raw_zip(("größe.txt".encode(), b"1"), ("Übersicht.txt".encode("cp437"), b"2")))
    assert set(got.contents) == {"größe.txt", "Übersicht.txt"}
    got = Unpacked(make_job, raw_zip(("見積書のひな形.txt".encode("cp932"), b"3")))
    assert set(got.contents) == {"見積書のひな形.txt"}
    got = Unpacked(make_job, raw_zip(("名前.txt".encode("cp932"), b"4")))
    assert set(got.contents) == {"名前.txt"}
    got = Unpacked(make_job, raw_zip(("中文名.txt".encode("gbk"), b"5"), ("Größe.txt".encode("cp437"), b"6")))
    assert "Größe.txt" in got.contents


def test_a_name_that_lies_about_being_utf8_spoils_itself_only(make_job: MakeJob) -> None:
    got = Unpacked(make_job, raw_zip((b"\xff\xfe.txt", b"1"), (b"b.txt", b"2"), flags=0x800))
    assert list(got.contents.values()) == [b"1", b"2"]
    got = Unpacked(make_job, tarred(("\udcff.txt", b"1"), ("b.txt", b"2")), media.TAR, Limits())
    assert list(got.contents.values()) == [b"1", b"2"]


def test_what_is_hidden_is_left_out_as_in_a_folder(make_job: MakeJob) -> None:
    entries = (("__MACOSX/._a.txt", b"x"), (".git/config", b"x"), ("sub/.DS_Store", b"x"), ("a.txt", b"A"))
    assert Unpacked(make_job, zipped(*entries)).contents == {"a.txt": b"A"}


def test_a_tar_that_breaks_off_keeps_what_came_before(make_job: MakeJob) -> None:
    tar = tarred(("a.txt", b"A" * 2000), ("b.bin", os.urandom(200_000)), mode="w:gz")
    got = Unpacked(make_job, tar[: len(tar) // 2], media.TAR, Limits())
    assert got.contents["a.txt"] == b"A" * 2000
    assert got.error is not None
    assert got.error.kind == "corrupt"


def test_a_damaged_header_in_a_tar_is_no_silent_end(make_job: MakeJob) -> None:
    tar = bytearray(tarred(("a.txt", b"A"), ("b.txt", b"B"), ("c.txt", b"C")))
    tar[1024] ^= 0xFF
    got = Unpacked(make_job, bytes(tar), media.TAR, Limits())
    assert got.contents == {"a.txt": b"A"}
    assert got.error is not None
    assert got.error.kind == "corrupt"


def test_a_file_of_a_zip_that_is_called_like_a_folder_is_not_lost(make_job: MakeJob) -> None:
    table = "写真と時刻表".encode("cp932")  # it ends with a backslash
    got = Unpacked(make_job, raw_zip((b"a.txt/", b"A"), (table, b"B"), (b"sub\\", b"")))
    assert got.contents == {"a.txt": b"A", "写真と時刻表": b"B"}


@pytest.mark.parametrize("cut", [10, 60, -30, -10])
def test_a_cut_zip_is_corrupt(make_job: MakeJob, cut: int) -> None:
    got = Unpacked(make_job, zipped(("a.txt", os.urandom(300)), ("b.txt", b"b"))[:cut])
    assert got.error is not None
    assert got.error.kind == "corrupt"


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_the_mails_of_a_mailbox_come_out_one_by_one(make_job: MakeJob, end: bytes) -> None:
    one, other = b"From: a\nSubject: 1\n\nOne\n>From the sea\n>>From it\n\n", b"From: b\nSubject: 2\n\nFrom him 10:30\n"
    mark = b"From a@b.example Mon Jan  1 10:30:00 2024\n"
    got = Unpacked(make_job, (mark + one + mark + other).replace(b"\n", end), media.MBOX)
    plain = one.replace(b">From", b"From")
    assert got.contents == {"1.eml": plain.replace(b"\n", end), "2.eml": other.replace(b"\n", end)}
    assert got.ended


def test_a_mail_above_max_bytes_spoils_itself_only(make_job: MakeJob) -> None:
    mark = b"From a@b.example Mon Jan  1 10:30:00 2024\n"
    mailbox = mark + b"From: a\n\n" + b"A" * 2000 + b"\n\n" + mark + b"From: b\n\nB"
    got = Unpacked(make_job, mailbox, media.MBOX)
    assert [one.problem and one.problem[0] for one in got.members] == ["too_large", None]


def test_a_suffix_is_kept_only_where_it_is_plain(make_job: MakeJob) -> None:
    got = Unpacked(make_job, zipped(("a.tar.gz", b"1"), (f"b.{'x' * 300}", b"2"), ("c.p d", b"3"), ("d.MD", b"4")))
    assert got.files == ["1.gz", "2", "3", "4.MD"]


@pytest.mark.parametrize("at", [struct.pack("<I", 0xFFFFFFF0), struct.pack("<I", 0x7FFFFFFF)])
def test_a_member_that_lies_nowhere_spoils_itself_only(make_job: MakeJob, at: bytes) -> None:
    archive = bytearray(raw_zip((b"a", b"A"), (b"b", b"B")))
    first = archive.index(b"PK\x01\x02")
    archive[first + 42 : first + 46] = at
    assert Unpacked(make_job, bytes(archive)).contents == {"a": "the archive's directory points at no entry", "b": b"B"}
    # A directory that is said to start further on than it does moves every entry to before the file.
    end = archive.index(b"PK\x05\x06")
    archive[end + 16 : end + 20] = at
    got = Unpacked(make_job, bytes(archive))
    assert [one.problem and one.problem[0] for one in got.members] == ["corrupt", "corrupt"]


@pytest.mark.parametrize("kind", [media.ZIP, media.TAR, media.EML])
def test_random_damage_ends_in_members_or_a_reason(make_job: MakeJob, kind: str) -> None:
    entries = (("a.txt", b"hello " * 50), ("sub/b.bin", bytes(range(256))), ("ü.txt", b"x"))
    whole = {
        media.ZIP: zipped(*entries),
        media.TAR: tarred(*entries, mode="w:gz"),
        media.EML: b'From: a@b.c\nContent-Type: multipart/mixed; boundary="B"\n\n--B\nContent-Type: image/png;\n'
        b' name="=?utf-8?q?=C3=BC?="\nContent-Transfer-Encoding: base64\n\niVBORw0KGgo=\n--B--\n',
    }[kind]
    draw = random.Random(5)
    for _ in range(150):
        bent = bytearray(whole)
        for _ in range(draw.randint(1, 5)):
            at = draw.randrange(len(bent))
            bent[at : at + draw.choice((1, 4))] = draw.choice(
                (b"\xff\xff\xff\xff", b"\0", b"A", bytes([at % 256]), b"")
            )
        got = Unpacked(make_job, bytes(bent), kind, Limits())
        assert got.ended or (got.error is not None and got.error.kind in ("corrupt", "unsafe"))
