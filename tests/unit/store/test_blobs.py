"""The blob store's promises, over files and over a bucket alike."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from pipeline.domain.errors import ConfigError, RejectedInput, ServiceUnavailable
from pipeline.store.blobs import BlobSource, BlobStore, StoredBlob, open_blobs
from pipeline.store.file_blobs import FileBlobs
from pipeline.store.s3 import S3Blobs
from tests.blobs import put as put_blob


class Bucket:
    """The five calls of boto3's S3 client, over a dict."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}
        self.down = False

    def _get(self, key: str, operation: str) -> bytes:
        if self.down:
            raise EndpointConnectionError(endpoint_url="http://bucket")
        if key not in self.held:
            raise ClientError({"Error": {"Code": "404", "Message": "Not Found"}}, operation)
        return self.held[key]

    def head_object(self, *, Bucket: str, Key: str) -> None:
        self._get(Key, "HeadObject")

    def get_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:
        return {"Body": io.BytesIO(self._get(Key, "GetObject"))}

    def put_object(self, *, Bucket: str, Key: str, Body: bytes) -> None:
        self.held[Key] = Body

    def upload_fileobj(self, file: Any, bucket: str, key: str) -> None:
        self.held[key] = file.read()

    def download_file(self, bucket: str, key: str, path: str) -> None:
        Path(path).write_bytes(self.held[key])

    def delete_object(self, *, Bucket: str, Key: str) -> None:
        self.held.pop(Key, None)


@pytest.fixture(params=["files", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    return FileBlobs(tmp_path / "blobs") if request.param == "files" else S3Blobs(Bucket(), "b", "some/prefix")


def test_a_blob_is_read_back_by_its_sha256(store: BlobStore, tmp_path: Path) -> None:
    data = b"x" * 3_000_000

    (put,) = store.put_all([_source(tmp_path / "a.pdf", data, held=False)])

    assert put == StoredBlob(hashlib.sha256(data).hexdigest(), 3_000_000, created=True)
    assert store.read(put.digest) == data
    with store.local_path(put.digest) as path:
        assert path.read_bytes() == data


def test_a_missing_blob_says_so_and_deleting_twice_is_no_error(store: BlobStore) -> None:
    digest = put_blob(store, b"gone soon").digest
    store.delete(digest)
    store.delete(digest)

    assert not store.exists(digest)
    with pytest.raises(RejectedInput, match="blob_missing"):
        store.read(digest)
    with pytest.raises(RejectedInput, match="blob_missing"), store.local_path(digest):
        pass


def test_a_secret_is_kept_under_its_document_and_goes_with_it(store: BlobStore) -> None:
    assert store.read_secret("7f3a") is None
    store.put_secret("7f3a", "geheim ß")
    assert store.read_secret("7f3a") == "geheim ß"
    store.delete_secret("7f3a")
    assert store.read_secret("7f3a") is None


def test_files_are_nobody_elses_business(tmp_path: Path) -> None:
    root = tmp_path / "blobs"
    root.mkdir(mode=0o755)
    store = FileBlobs(root)
    put_blob(store, b"private")
    store.put_secret("7f3a", "p")

    modes = {stat.S_IMODE(path.stat().st_mode) for path in [root, *root.rglob("*")] if path.is_dir()}
    assert modes == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in root.rglob("*") if path.is_file()} == {0o600}


def test_a_full_disk_is_one_clear_error_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileBlobs(tmp_path / "blobs")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ServiceUnavailable, match="no space left for") as caught:
        put_blob(store, b"too much")

    assert "TIDEGATE_BLOB_URL" in caught.value.remedy
    assert [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()] == []


def test_a_folder_that_cant_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ServiceUnavailable, match="blob folder"):
        FileBlobs(tmp_path / "file" / "blobs")


def test_a_bucket_that_does_not_answer_is_a_missing_service() -> None:
    bucket = Bucket()
    bucket.down = True
    with pytest.raises(ServiceUnavailable, match="the bucket 'b' failed"):
        put_blob(S3Blobs(bucket, "b"), b"x")


@pytest.mark.parametrize("url", ["ftp://host/x", "file://host/x", "blobs", "s3://", ""])
def test_another_kind_of_url_is_a_configuration_error(url: str) -> None:
    with pytest.raises(ConfigError, match="TIDEGATE_BLOB_URL"):
        open_blobs(url)


def test_a_file_url_is_decoded(tmp_path: Path) -> None:
    store = open_blobs(f"file://{tmp_path}/with%20space")
    put_blob(store, b"x")
    assert (tmp_path / "with space").is_dir()


def test_only_a_digest_names_a_blob(tmp_path: Path) -> None:
    store = FileBlobs(tmp_path)
    with pytest.raises(ValueError, match="not a blob's digest"):
        store.read("../../etc/passwd")
    with pytest.raises(ValueError, match="not a secret's name"):
        store.read_secret("../x")


def test_many_files_are_stored_at_once_each_once(store: BlobStore, tmp_path: Path) -> None:
    contents = [f"text {number % 40}".encode() for number in range(50)]
    sources = [_source(tmp_path / str(number), data) for number, data in enumerate(contents)]

    put = store.put_all(sources)

    assert [blob.digest for blob in put if isinstance(blob, StoredBlob)] == [source.digest for source in sources]
    assert [store.read(source.digest) for source in sources] == contents
    assert all(isinstance(blob, StoredBlob) and not blob.created for blob in store.put_all(sources))


def test_of_many_files_one_that_is_gone_is_told_and_one_that_changed_is_stored_as_it_is(
    store: BlobStore, tmp_path: Path
) -> None:
    sources = [_source(tmp_path / str(number), b"%d" % number, held=False) for number in range(3)]
    (tmp_path / "0").unlink()
    (tmp_path / "1").write_bytes(b"other")

    gone, changed, same = store.put_all(sources)

    assert isinstance(gone, FileNotFoundError)
    assert isinstance(changed, StoredBlob)
    assert isinstance(same, StoredBlob)
    assert (store.read(changed.digest), store.read(same.digest)) == (b"other", b"2")
    assert not store.exists(sources[1].digest)


def test_no_digest_names_bytes_that_a_crash_could_still_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "blobs"
    store = FileBlobs(root)
    sources = [_source(tmp_path / str(number), b"%d" % number) for number in range(3)]
    named: list[int] = []

    def durable(paths: Sequence[str], within: str) -> None:
        named.append(sum(len(path.name) == 64 for path in root.rglob("*")))
        assert all(Path(path).exists() for path in paths)

    monkeypatch.setattr("pipeline.store.file_blobs.make_durable", durable)
    store.put_all(sources)

    # First the bytes, then the names, and only then is it said that they are stored.
    assert named == [0, 3]


def test_a_disk_that_fills_up_among_many_files_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileBlobs(tmp_path / "blobs")

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(ServiceUnavailable, match="no space left for"):
        store.put_all([_source(tmp_path / "a", b"too much")])

    assert [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()] == []


def test_a_disk_that_fills_up_is_not_taken_for_a_file_that_cant_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileBlobs(tmp_path / "blobs")
    monkeypatch.setattr("pipeline.store.file_blobs._create", lambda _: os.open("/dev/full", os.O_WRONLY))
    with pytest.raises(ServiceUnavailable, match="no space left for"):
        store.put_all([_source(tmp_path / "a", b"too much", held=False)])


def test_a_bucket_whose_copies_find_no_room_is_not_a_file_that_cant_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = _source(tmp_path / "a", b"too much", held=False)
    store = S3Blobs(Bucket(), "b")

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(ServiceUnavailable, match="takes no copy of a: No space left"):
        store.put_all([source])


def test_a_password_that_cant_be_kept_is_left_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileBlobs(tmp_path / "blobs")

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ServiceUnavailable, match="no space left for"):
        store.put_secret("7f3a", "geheim")

    assert [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()] == []


def test_what_a_crash_left_short_is_written_again(tmp_path: Path) -> None:
    store = FileBlobs(tmp_path / "blobs")
    source = _source(tmp_path / "a", b"whole")
    store.put_all([source])
    with store.local_path(source.digest) as path:
        path.write_bytes(b"")

    (blob,) = store.put_all([source])

    assert isinstance(blob, StoredBlob)
    assert (blob.created, store.read(source.digest)) == (True, b"whole")


def test_a_store_with_two_levels_of_folders_is_read(tmp_path: Path) -> None:
    source = _source(tmp_path / "a", b"old")
    former = tmp_path / "blobs" / source.digest[:2] / source.digest[2:4] / source.digest
    former.parent.mkdir(parents=True)
    former.write_bytes(b"old")
    store = FileBlobs(tmp_path / "blobs")

    assert store.read(source.digest) == b"old"
    (blob,) = store.put_all([source])
    assert isinstance(blob, StoredBlob)
    assert not blob.created
    store.delete(source.digest)
    assert not store.exists(source.digest)


def _source(path: Path, data: bytes, *, held: bool = True) -> BlobSource:
    path.write_bytes(data)
    return BlobSource(path, hashlib.sha256(data).hexdigest(), len(data), data if held else None)
