"""Blobs in an S3 bucket, for deployments whose workers share no disk."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipeline.domain.errors import ConfigError, ServiceUnavailable
from pipeline.store.blobs import BlobSource, StoredBlob, file_chunks, missing, write_all

__all__ = ["S3Blobs", "open_s3"]

_SENDERS = 16
_ABSENT = frozenset({"404", "NoSuchKey", "NotFound"})


def open_s3(bucket: str, prefix: str) -> S3Blobs:
    """Open a bucket with boto3's usual credentials, region and ``AWS_ENDPOINT_URL``.

    Raises:
        ConfigError: boto3 is not installed, or has no region to work with.
    """
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ImportError:
        raise ConfigError(
            f"TIDEGATE_BLOB_URL names the bucket {bucket!r}, and boto3 is not installed",
            "install it: pip install 'tidegate[s3]'",
        ) from None
    try:
        client = boto3.client("s3", config=Config(connect_timeout=5, read_timeout=60, retries={"max_attempts": 3}))
    except BotoCoreError as error:
        raise ConfigError(f"the bucket {bucket!r} can't be opened: {error}", "check the AWS_… settings") from error
    return S3Blobs(client, bucket, prefix)


class S3Blobs:
    """A ``BlobStore`` over one bucket; the client is boto3's (it may be shared by threads)."""

    def __init__(self, client: Any, bucket: str, prefix: str = "") -> None:
        self._client = client
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""

    def put_all(self, sources: Sequence[BlobSource]) -> list[StoredBlob | OSError]:
        # Most of the time goes into waiting for the answers.
        with ThreadPoolExecutor(_SENDERS, "blobs") as pool:
            return list(pool.map(self._put, sources))

    def read(self, digest: str) -> bytes:
        data = self._get(self._key(digest))
        if data is None:
            raise missing(digest, f"the bucket {self._bucket!r}")
        return data

    @contextmanager
    def local_path(self, digest: str) -> Iterator[Path]:
        if not self.exists(digest):
            raise missing(digest, f"the bucket {self._bucket!r}")
        with tempfile.TemporaryDirectory(prefix="tidegate-") as folder:
            path = Path(folder) / digest
            with self._calling():
                self._client.download_file(self._bucket, self._key(digest), str(path))
            yield path

    def exists(self, digest: str) -> bool:
        with self._calling():
            try:
                self._client.head_object(Bucket=self._bucket, Key=self._key(digest))
            except Exception as error:
                if _is_absent(error):
                    return False
                raise
        return True

    def delete(self, digest: str) -> None:
        with self._calling():
            self._client.delete_object(Bucket=self._bucket, Key=self._key(digest))

    def put_secret(self, name: str, secret: str) -> None:
        with self._calling():
            self._client.put_object(Bucket=self._bucket, Key=self._secret_key(name), Body=secret.encode())

    def read_secret(self, name: str) -> str | None:
        data = self._get(self._secret_key(name))
        return None if data is None else data.decode()

    def delete_secret(self, name: str) -> None:
        with self._calling():
            self._client.delete_object(Bucket=self._bucket, Key=self._secret_key(name))

    def _put(self, source: BlobSource) -> StoredBlob | OSError:
        if self.exists(source.digest):
            return StoredBlob(source.digest, source.size_bytes, created=False)
        if source.data is not None:
            with self._calling():
                self._client.put_object(Bucket=self._bucket, Key=self._key(source.digest), Body=source.data)
            return StoredBlob(source.digest, source.size_bytes, created=True)
        try:
            return self._copy(source.path)
        except OSError as error:
            return error

    def _copy(self, path: Path) -> StoredBlob:
        # The bytes that are hashed are the bytes that are sent: a copy can't change on the way.
        with _copying(path.name):
            copy = tempfile.NamedTemporaryFile()  # noqa: SIM115 -- entered below
        with copy:
            hasher, size = hashlib.sha256(), 0
            with path.open("rb") as file:
                for chunk in file_chunks(file):
                    hasher.update(chunk)
                    size += len(chunk)
                    with _copying(path.name):
                        write_all(copy.fileno(), chunk)
            copy.seek(0)
            stored = hasher.hexdigest()
            with self._calling():
                self._client.upload_fileobj(copy, self._bucket, self._key(stored))
        return StoredBlob(stored, size, created=True)

    def _key(self, digest: str) -> str:
        return f"{self._prefix}{digest[:2]}/{digest[2:4]}/{digest}"

    def _secret_key(self, name: str) -> str:
        return f"{self._prefix}secrets/{name}"

    def _get(self, key: str) -> bytes | None:
        with self._calling():
            try:
                answer = self._client.get_object(Bucket=self._bucket, Key=key)
            except Exception as error:
                if _is_absent(error):
                    return None
                raise
            with answer["Body"] as body:
                data: bytes = body.read()
        return data

    @contextmanager
    def _calling(self) -> Iterator[None]:
        # boto3 makes its exception classes at run time; these two are the roots of all of them.
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except (Boto3Error, BotoCoreError, ClientError) as error:
            raise ServiceUnavailable(
                f"the bucket {self._bucket!r} failed: {error}", "check TIDEGATE_BLOB_URL and the AWS_… settings"
            ) from error


@contextmanager
def _copying(name: str) -> Iterator[None]:
    """The file is not at fault where a copy of it has no room."""
    try:
        yield
    except OSError as error:
        raise ServiceUnavailable(
            f"the temporary folder takes no copy of {name}: {error.strerror}",
            "free some space there, or name another folder in TMPDIR",
        ) from error


def _is_absent(error: Exception) -> bool:
    response = getattr(error, "response", None)
    return isinstance(response, dict) and str(response.get("Error", {}).get("Code")) in _ABSENT
