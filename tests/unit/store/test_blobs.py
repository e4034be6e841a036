"""The blob store's promises, over files and over a bucket alike."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from pipeline.domain.errors import ConfigError, RejectedInput, ServiceUnavailable
from pipeline.store.blobs import BlobStore, FileBlobs, open_blobs
from pipeline.store.s3 import S3Blobs


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
    file = tmp_path / "a.pdf"
    file.write_bytes(b"x" * 3_000_000)

    put = store.put_path(file)

    assert put.digest == hashlib.sha256(file.read_bytes()).hexdigest()
    assert (put.size_bytes, put.created) == (3_000_000, True)
    assert store.read(put.digest) == file.read_bytes()
    with store.local_path(put.digest) as path:
        assert path.read_bytes() == file.read_bytes()


def test_the_same_bytes_are_stored_once(store: BlobStore, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"same")

    first, second = store.put_path(tmp_path / "a"), store.put_bytes(b"same")

    assert first.digest == second.digest
    assert (first.created, second.created) == (True, False)


def test_a_missing_blob_says_so_and_deleting_twice_is_no_error(store: BlobStore) -> None:
    digest = store.put_bytes(b"gone soon").digest
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
    store.put_bytes(b"private")
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
        store.put_bytes(b"too much")

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
        S3Blobs(bucket, "b").put_bytes(b"x")


@pytest.mark.parametrize("url", ["ftp://host/x", "file://host/x", "blobs", "s3://", ""])
def test_another_kind_of_url_is_a_configuration_error(url: str) -> None:
    with pytest.raises(ConfigError, match="TIDEGATE_BLOB_URL"):
        open_blobs(url)


def test_a_file_url_is_decoded(tmp_path: Path) -> None:
    store = open_blobs(f"file://{tmp_path}/with%20space")
    store.put_bytes(b"x")
    assert (tmp_path / "with space").is_dir()


def test_only_a_digest_names_a_blob(tmp_path: Path) -> None:
    store = FileBlobs(tmp_path)
    with pytest.raises(ValueError, match="not a blob's digest"):
        store.read("../../etc/passwd")
    with pytest.raises(ValueError, match="not a secret's name"):
        store.read_secret("../x")
