"""What the fuzz begins with: the examples, the fixtures, and a small file of each kind that is made here."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Iterator
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

__all__ = ["seeds"]

_ROOT = Path(__file__).parents[2]
_FOLDERS = (_ROOT / "examples", _ROOT / "tests" / "fixtures")
_NO_DOCUMENT = frozenset({".py", ".pyc", ".json"})
_MOST_BYTES = 400_000

_TEXTS: dict[str, str | bytes] = {
    "rows.csv": 'gate;level;"keeper"\nNorth;1,85;"Ann; Bo"\nLantern;2,10;"Zoë ""Z"" M"\n' * 20,
    "rows.tsv": "gate\tlevel\nNorth\t1.85\n" * 20,
    "one.json": '{"title": "Levels", "gates": [{"name": "North", "m": 1.85}, {"name": "潮門", "m": null}]}',
    "many.jsonl": '{"n": 1, "words": "café"}\n{"n": 2}\n' * 20,
    "tree.xml": '<?xml version="1.0" encoding="utf-8"?><log><title>Log</title><e n="1">First <b>gate</b></e></log>',
    "late.txt": b"plain words\n" * 3000 + "café\n".encode("latin-1"),
    "kanji.txt": "東京都港区の潮門操作手順。担当は佐藤です。\n".encode("cp932") * 20,
    "wide.txt": ("Tide tables for the year\n" * 20).encode("utf-16"),
    "list.md": "---\ntitle: Watch\n---\n# Watch\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n\n```py\nx = 1\n```\n- one\n",
    "mail.eml": (
        "From: Ann <ann@example.org>\nTo: bob@example.org\nSubject: =?utf-8?q?Caf=C3=A9?=\nMIME-Version: 1.0\n"
        'Date: Fri, 14 Nov 2025 10:00:00 +0000\nContent-Type: multipart/mixed; boundary="B"\n\n--B\n'
        "Content-Type: text/html; charset=iso-8859-1\nContent-Transfer-Encoding: quoted-printable\n\n"
        "<p>Die T=FCr klemmt.</p>\n--B\nContent-Type: text/csv\nContent-Disposition: attachment; filename=a.csv\n\n"
        "a,b\n1,2\n--B--\n"
    ),
    "note.rtf": rb"{\rtf1\ansi\ansicpg1252{\fonttbl{\f0 Arial;}}\f0 Hello \b bold\b0  caf\'e9 \u28526?\par Second\par}",
}


def seeds() -> dict[str, bytes]:
    """Files by name."""
    found: dict[str, bytes] = {}
    for folder in _FOLDERS:
        for path in sorted(folder.glob("*.*")):
            if path.is_file() and path.suffix not in _NO_DOCUMENT and path.stat().st_size <= _MOST_BYTES:
                packed = path.suffix == ".gz"
                found[path.stem if packed else path.name] = _unpacked(path) if packed else path.read_bytes()
    for name, text in _TEXTS.items():
        found[name] = text.encode() if isinstance(text, str) else text
    found.update(_images())
    return found


def _unpacked(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes())


def _images() -> Iterator[tuple[str, bytes]]:
    page = Image.new("RGB", (240, 160), "white")
    ImageDraw.Draw(page).text((20, 40), "VALVE 7", font=ImageFont.load_default(48), fill="navy")
    second = page.rotate(180)
    makers: dict[str, Callable[[io.BytesIO], None]] = {
        "plate.png": lambda out: page.save(out, "PNG"),
        "plate.jpg": lambda out: page.save(out, "JPEG"),
        "plate.bmp": lambda out: page.save(out, "BMP"),
        "plate.gif": lambda out: page.convert("P").save(out, "GIF", save_all=True, append_images=[second.convert("P")]),
        "plate.webp": lambda out: page.save(out, "WEBP"),
        "pages.tiff": lambda out: page.save(
            out, "TIFF", save_all=True, append_images=[second, page.convert("1")], compression="tiff_lzw"
        ),
        "fax.tiff": lambda out: page.convert("1").save(out, "TIFF", compression="group4"),
        "old.tiff": lambda out: page.save(out, "TIFF", compression="jpeg"),
    }
    for name, make in makers.items():
        out = io.BytesIO()
        make(out)
        yield name, out.getvalue()
