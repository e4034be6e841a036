"""Blobs as files in a folder, for one machine or for several that share a disk."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pipeline.domain.errors import ServiceUnavailable
from pipeline.store.blobs import BlobSource, StoredBlob, file_chunks, missing, write_all
from pipeline.store.durable import make_durable

__all__ = ["FileBlobs"]

_DIGEST = re.compile(r"[0-9a-f]{64}")
_SECRET = re.compile(r"[A-Za-z0-9-]{1,64}")

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class FileBlobs:
    """Blobs as files ``aa/<digest>`` under a folder (0700; files 0600), each written whole or not at all.

    Another level of folders would mostly hold a file each: as many inodes again. Stores made with one are read.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._root_path = str(root)
        self._incoming = root / "incoming"
        self._secrets = root / "secrets"
        with self._storing("the blob folder"):
            for folder in (root, self._incoming, self._secrets):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Made by hand or under a wide umask: still nobody else's business.
            root.chmod(0o700)

    def put_all(self, sources: Sequence[BlobSource]) -> list[StoredBlob | OSError]:
        with self._storing("the files"):
            folder = tempfile.mkdtemp(dir=self._incoming)
        try:
            outcomes: list[StoredBlob | OSError] = []
            fresh: dict[str, str] = {}
            for number, source in enumerate(sources):
                with self._storing(source.path.name):
                    held = source.digest in fresh or self._holds(source)
                if held:
                    outcomes.append(StoredBlob(source.digest, source.size_bytes, created=False))
                    continue
                temporary = f"{folder}/{number}"
                try:
                    blob = self._write(source, temporary)
                except OSError as error:
                    outcomes.append(error)
                    continue
                fresh[blob.digest] = temporary
                outcomes.append(blob)
            with self._storing("the files"):
                self._keep(fresh)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return outcomes

    def read(self, digest: str) -> bytes:
        with self._reading(digest):
            return self._path(digest).read_bytes()

    @contextmanager
    def local_path(self, digest: str) -> Iterator[Path]:
        path = self._path(digest)
        if not self.exists(digest):
            raise missing(digest, str(self._root))
        yield path

    def exists(self, digest: str) -> bool:
        with self._reading(digest):
            return self._path(digest).is_file()

    def delete(self, digest: str) -> None:
        with self._storing(digest[:12]):
            self._path(digest).unlink(missing_ok=True)

    def put_secret(self, name: str, secret: str) -> None:
        path = self._secrets / _secret_name(name)
        with self._storing("a document's password"), tempfile.TemporaryDirectory(dir=self._incoming) as folder:
            handle = _create(f"{folder}/secret")
            try:
                write_all(handle, secret.encode())
                os.fsync(handle)
            finally:
                os.close(handle)
            os.replace(f"{folder}/secret", path)
            # Its document is accepted next, and could not be opened without it.
            make_durable([str(path.parent)], self._root_path)

    def read_secret(self, name: str) -> str | None:
        with suppress(FileNotFoundError), self._storing("a document's password"):
            return (self._secrets / _secret_name(name)).read_bytes().decode()
        return None

    def delete_secret(self, name: str) -> None:
        with self._storing("a document's password"):
            (self._secrets / _secret_name(name)).unlink(missing_ok=True)

    def _holds(self, source: BlobSource) -> bool:
        place = self._place(source.digest)
        for path in (place, _former(place)):
            try:
                # A file of another length is what a crash has left of one.
                if os.stat(path).st_size == source.size_bytes:
                    return True
            except FileNotFoundError:
                pass
        return False

    def _write(self, source: BlobSource, temporary: str) -> StoredBlob:
        """Write a file's bytes, which may still be lost; an OSError is the source's, not the store's."""
        with self._storing(source.path.name):
            handle = _create(temporary)
        try:
            if source.data is not None:
                self._append(handle, source.data, source.path.name)
                return StoredBlob(source.digest, source.size_bytes, created=True)
            hasher, size = hashlib.sha256(), 0
            with source.path.open("rb") as original:
                for chunk in file_chunks(original):
                    hasher.update(chunk)
                    size += len(chunk)
                    self._append(handle, chunk, source.path.name)
            return StoredBlob(hasher.hexdigest(), size, created=True)
        finally:
            os.close(handle)

    def _append(self, handle: int, data: bytes, name: str) -> None:
        with self._storing(name):
            write_all(handle, data)

    def _keep(self, written: dict[str, str]) -> None:
        """Put written files in their places: their bytes are on the disk before a digest names them."""
        root = self._root_path
        make_durable(list(written.values()), root)
        changed: set[str] = set()
        for digest, temporary in written.items():
            target = self._place(digest)
            folder = os.path.dirname(target)
            try:
                os.replace(temporary, target)
            except FileNotFoundError:
                with suppress(FileExistsError):
                    os.mkdir(folder, mode=0o700)
                os.replace(temporary, target)
                changed.add(root)
            changed.add(folder)
        make_durable(sorted(changed), root)

    def _path(self, digest: str) -> Path:
        """Where a blob lies, or would."""
        place = self._place(digest)
        former = _former(place)
        return Path(former if not os.path.exists(place) and os.path.exists(former) else place)

    def _place(self, digest: str) -> str:
        if not _DIGEST.fullmatch(digest):
            raise ValueError(f"not a blob's digest: {digest!r}")
        return f"{self._root_path}/{digest[:2]}/{digest}"

    @contextmanager
    def _storing(self, what: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            # For the caller that expects it; a missing folder is another errno's business below.
            if not self._incoming.is_dir():
                raise self._unavailable("is gone", "make it again, or check TIDEGATE_BLOB_URL") from None
            raise
        except OSError as error:
            if error.errno in _FULL:
                raise self._unavailable(
                    f"has no space left for {what}", "free some space, or point TIDEGATE_BLOB_URL at a larger disk"
                ) from error
            if error.errno in _FORBIDDEN:
                raise self._unavailable(
                    f"can't be used: {error.strerror}",
                    "give this user the right to write there, or set TIDEGATE_BLOB_URL",
                ) from error
            raise self._unavailable(f"failed: {error.strerror or error}", "check the disk behind it") from error

    @contextmanager
    def _reading(self, digest: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, NotADirectoryError):
            raise missing(digest, str(self._root)) from None
        except OSError as error:
            raise self._unavailable(f"can't be read: {error.strerror}", "check the disk behind it") from error

    def _unavailable(self, fact: str, remedy: str) -> ServiceUnavailable:
        return ServiceUnavailable(f"the blob folder {str(self._root)!r} {fact}", remedy)


def _create(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)


def _former(place: str) -> str:
    """Where a blob lies in a store that was made with another level of folders."""
    folder, digest = os.path.split(place)
    return f"{folder}/{digest[2:4]}/{digest}"


def _secret_name(name: str) -> str:
    if not _SECRET.fullmatch(name):
        raise ValueError(f"not a secret's name: {name!r}")
    return name
