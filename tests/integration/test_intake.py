"""What an enqueue takes in, with real children that take containers apart."""

from __future__ import annotations

import threading
import zipfile
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from email.message import EmailMessage
from pathlib import Path

import pytest

from pipeline.documents import sandbox
from pipeline.documents.job import Event, Job, Opened
from pipeline.documents.sniff import sniff
from pipeline.domain.document import Limits
from pipeline.domain.errors import ChildDied
from pipeline.intake import Intake, Read
from pipeline.sources import BadSource
from tests.unit.documents.archives import raw_zip, tarred, zipped


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where containers are taken apart; it must be empty after every test."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


@contextmanager
def intake(*, expand: bool = True, limits: Limits | None = None) -> Iterator[Intake]:
    with Intake(limits or Limits(), sniff, expand=expand) as made:
        yield made


def taken(*paths: Path, expand: bool = True, limits: Limits | None = None) -> dict[str, str]:
    """By uri below the first path's folder what each is: its media type, or why it is rejected."""
    root = f"{paths[0].parent}/"
    with intake(expand=expand, limits=limits) as made:
        read = list(made.read(paths))
    uris = [one.uri if isinstance(one, BadSource) else one.source.uri for one in read]
    assert all(uri.startswith(root) for uri in uris)
    said = [one.reason if isinstance(one, BadSource) else one.facts.media_type for one in read]
    return {uri.removeprefix(root): what for uri, what in zip(uris, said, strict=True)}


def put(tmp_path: Path, name: str, content: bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(content)
    return path


def a_mail(**files: bytes) -> bytes:
    mail = EmailMessage()
    mail["From"], mail["Subject"] = "a@quay.example", "The berth plan"
    mail.set_content("See below.")
    for name, content in files.items():
        mail.add_attachment(content, maintype="application", subtype="octet-stream", filename=name.replace("_", "."))
    return bytes(mail)


def test_an_archive_is_rejected_by_name_until_it_is_expanded(tmp_path: Path, temporary: Path) -> None:
    archive = put(tmp_path, "a.zip", zipped(("a.md", b"# A"), ("sub/b.csv", b"a,b\n1,2"), ("evil", b"\x7fELF")))
    assert taken(archive, expand=False) == {"a.zip": "unsupported: a ZIP archive; add --expand to take what is in it"}
    assert taken(archive) == {
        "a.zip!/a.md": "text/markdown",
        "a.zip!/sub/b.csv": "text/csv",
        "a.zip!/evil": "unsupported: a program",
    }
    assert list(temporary.iterdir()) == []


def test_a_mail_is_itself_and_its_attachments_also_in_an_archive(tmp_path: Path) -> None:
    inner = a_mail(note_txt=b"a note")
    mail = put(tmp_path, "m.eml", a_mail(a_md=b"# A", letter_eml=inner, more_zip=zipped(("x.txt", b"x"))))
    found = {
        "m.eml": "message/rfc822",
        "m.eml!/a.md": "text/markdown",
        "m.eml!/letter.eml": "message/rfc822",
        "m.eml!/letter.eml!/note.txt": "text/plain",
    }
    assert taken(mail) == found | {"m.eml!/more.zip!/x.txt": "text/plain"}
    assert taken(mail, expand=False) == found | {
        "m.eml!/more.zip": "unsupported: a ZIP archive; add --expand to take what is in it"
    }
    boxed = put(tmp_path, "box.tar", tarred(("m.eml", inner)))
    assert list(taken(boxed)) == ["box.tar!/m.eml", "box.tar!/m.eml!/note.txt"]


def test_an_outlook_messages_attachments_are_files_too(tmp_path: Path) -> None:
    message = put(tmp_path, "m.msg", (Path(__file__).parents[1] / "fixtures" / "message.msg").read_bytes())
    assert taken(message) == {"m.msg": "application/vnd.ms-outlook", "m.msg!/turns.csv": "text/csv"}


def test_a_mail_without_attachments_costs_no_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> Iterator[Event]:
        raise AssertionError("a child was started")

    monkeypatch.setattr(sandbox, "run", never)
    assert taken(put(tmp_path, "m.eml", a_mail())) == {"m.eml": "message/rfc822"}


def test_archives_in_archives_end_at_a_depth(tmp_path: Path) -> None:
    content = zipped(("deep.txt", b"deep"))
    for depth in range(4):
        content = zipped((f"{depth}.zip", content))
    ((uri, reason),) = taken(put(tmp_path, "a.zip", content)).items()
    assert uri == "a.zip!/3.zip!/2.zip!/1.zip"
    assert reason == "unsafe: archives are nested too deeply"


def test_what_is_nested_counts_against_the_outermost(tmp_path: Path) -> None:
    inner = zipped(*[(f"{n}.txt", b"x" * 900) for n in range(4)])
    archive = put(tmp_path, "a.zip", zipped(("1.zip", inner), ("2.zip", inner), ("3.zip", inner)))
    found = taken(archive, limits=Limits(max_members=11))
    assert sum(what == "text/plain" for what in found.values()) == 8
    assert found["a.zip!/3.zip"] == "unsafe: it holds more files than limits.max_members allows"
    found = taken(archive, limits=Limits(max_archive_bytes=8000 + 3 * len(inner)))
    assert sum(what == "text/plain" for what in found.values()) == 8
    assert "limits.max_archive_bytes" in found["a.zip!/3.zip"]


def test_a_name_that_comes_twice_is_taken_once(tmp_path: Path) -> None:
    archive = put(tmp_path, "a.zip", raw_zip((b"a.txt", b"first"), (b"./a.txt", b"second")))
    with intake() as made:
        first, second = made.read([archive])
        assert isinstance(first, Read)
        assert first.facts.data == b"first"
        assert isinstance(second, BadSource)
        assert second.reason == "unsafe: another file in it has the same name"


def test_names_become_one_line_of_valid_text(tmp_path: Path) -> None:
    archive = put(tmp_path, "a.tar", tarred(("line\nbreak.txt", b"1"), ("\udcff.txt", b"2"), ("x" * 3000, b"3")))
    found = taken(archive)
    assert list(found)[:2] == ["a.tar!/line\\x0abreak.txt", "a.tar!/\\xff.txt"]
    assert list(found.values()) == ["text/plain", "text/plain", "its path is longer than 2,048 bytes"]


def test_hostile_and_empty_archives_are_rejected_as_a_whole(tmp_path: Path, temporary: Path) -> None:
    bomb = put(tmp_path, "bomb.zip", zipped(*[(f"{n}.txt", bytes(9_000_000)) for n in range(8)]))
    many = put(tmp_path, "many.zip", zipped(*[(f"{n}.txt", b"") for n in range(60)]))
    cut = put(tmp_path, "cut.zip", zipped(("a.txt", b"a"))[:-30])
    empty = put(tmp_path, "empty.zip", zipped(("folder/", b"")))
    found = taken(bomb, many, cut, empty, limits=Limits(max_members=50))
    assert {name: reason.partition(":")[0] for name, reason in found.items()} == {
        "bomb.zip": "unsafe", "many.zip": "unsafe", "cut.zip": "corrupt", "empty.zip": "an archive without files",
    }  # fmt: skip
    assert list(temporary.iterdir()) == []


def test_an_archive_may_be_larger_than_a_document_but_not_without_end(tmp_path: Path) -> None:
    entries = [(f"{n}.txt", str(n).encode() * 400) for n in range(5)]
    archive = put(tmp_path, "a.zip", zipped(*entries, method=zipfile.ZIP_STORED))
    assert set(taken(archive, limits=Limits(max_bytes=1000)).values()) == {"text/plain"}
    size = f"{archive.stat().st_size:,}"
    assert taken(archive, limits=Limits(max_bytes=1000, max_archive_bytes=1500)) == {
        "a.zip": f"too_large: {size} bytes are above limits.max_archive_bytes, which is 1,500"
    }


def test_a_child_that_dies_rejects_its_container_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(job: Job, **_: object) -> Iterator[Event]:
        yield Opened(1, None)
        raise ChildDied("killed", "SIGKILL from outside")

    monkeypatch.setattr(sandbox, "run", dies)
    archive, mail = put(tmp_path, "a.zip", zipped(("a", b"a"))), put(tmp_path, "m.eml", a_mail(a_md=b"# A"))
    found = taken(archive, mail, put(tmp_path, "b.txt", b"b"))
    assert list(found) == ["a.zip", "m.eml", "m.eml!/", "b.txt"]
    assert found["m.eml!/"].startswith("its attachments: the parse process killed")
    assert found["b.txt"] == "text/plain"


def test_temporary_files_go_as_soon_as_their_members_are_accepted(tmp_path: Path, temporary: Path) -> None:
    archives = [put(tmp_path, f"{n}.zip", zipped(("a.txt", b"a"), ("b.txt", b"b"))) for n in range(3)]
    with intake() as made:
        reading = made.read(archives)
        for _ in range(5):
            next(reading)
        assert len(list(temporary.iterdir())) == 3
        made.release(3)
        assert len(list(temporary.iterdir())) == 2
        made.release(4)
        assert len(list(temporary.iterdir())) == 1
    assert list(temporary.iterdir()) == []


def test_taking_apart_is_ended_when_nobody_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began = threading.Event()

    def endless(job: Job, *, stopped: object, **_: object) -> Iterator[Event]:
        assert callable(stopped)
        began.set()
        for _ in iter(stopped, True):
            yield Opened(1, None)
        raise CancelledError

    monkeypatch.setattr(sandbox, "run", endless)
    archive = put(tmp_path, "a.zip", zipped(("a", b"a")))
    with intake() as made:

        def end() -> None:
            began.wait(20)
            made.stop()

        ends = threading.Thread(target=end)
        ends.start()
        with pytest.raises(CancelledError):
            list(made.read([archive]))
        ends.join()
