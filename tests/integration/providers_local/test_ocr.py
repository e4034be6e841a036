"""The real OCR models over scans of the corpus."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path

import pypdfium2
import pytest
from PIL import Image

from pipeline.domain.errors import UpstreamFailure
from pipeline.failover.target import Target
from pipeline.failover.upstream import ChatRequest, Delta, Finish
from pipeline.providers.local import LocalUpstream
from pipeline.providers.local.pool import ChildPool
from pipeline.providers.local.upstream import NOTHING_TO_READ
from pipeline.stages.prompts import load_prompt

CORPUS = Path(__file__).parents[4] / "shared" / "corpus"
OCR = Target(key="local/ocr@host", preset="local-ocr", model="local/ocr")


def page(name: str, number: int = 1) -> bytes:
    path = CORPUS / name
    if not path.exists():
        pytest.skip(f"no corpus with {name}")
    with pypdfium2.PdfDocument(path) as document:
        sheet = document[number - 1]
        image = sheet.render(scale=1540 / max(sheet.get_size())).to_pil().convert("RGB")
    out = io.BytesIO()
    image.save(out, "JPEG", quality=90)
    return out.getvalue()


def request(image: bytes, text: str = "") -> ChatRequest:
    return ChatRequest("describe", (), {"image": image, "text": text, "page_number": 1})


@pytest.fixture
async def pool() -> AsyncIterator[ChildPool]:
    made = ChildPool(size=1, threads=2, job_timeout_s=120.0)
    yield made
    await made.close()


@pytest.fixture
def upstream(pool: ChildPool) -> LocalUpstream:
    return LocalUpstream(pool=pool)


@pytest.mark.heavy
async def test_scans_are_read_whichever_way_up_they_are(upstream: LocalUpstream) -> None:
    for name in ("scan.pdf", "scan-rotated-90.pdf"):
        reply = await upstream.chat(OCR, request(page(name)))
        assert "Docling bundles PDF document conversion to" in " ".join(reply.text.split()), name
    readings = [(await upstream.chat(OCR, request(page("four-orientations.pdf", n)))).text for n in (1, 2, 3, 4)]
    for number, text in enumerate(readings, start=1):
        folded = " ".join(text.split())
        assert folded.startswith("# The LinnSequencer"), number
        # Two columns below a full-width list: the left one is read before the right one.
        marks = ["state-of-the-art", "TRANSPOSED at the touch", "Recording a Sequence", "Editing"]
        assert [folded.index(mark) for mark in marks] == sorted(folded.index(mark) for mark in marks), number


async def test_old_print_is_read(upstream: LocalUpstream) -> None:
    reply = await upstream.chat(OCR, request(page("scan-1900s.pdf")))
    assert "tip-toeing along a path" in reply.text


async def test_korean_is_read_upside_down_too(upstream: LocalUpstream) -> None:
    turned = io.BytesIO()
    Image.open(io.BytesIO(page("korean-tables.pdf"))).rotate(180).save(turned, "JPEG", quality=90)
    reply = await upstream.chat(OCR, request(turned.getvalue()))
    for words in ("빅포인트의 유효기간은 5년으로", "모든 주유소", "적립 제외 대상", "세븐일레븐, 미니스톱"):
        assert words in reply.text, reply.text


async def test_a_blank_page_is_said_to_be_blank_as_the_prompt_asks(upstream: LocalUpstream) -> None:
    events = [event async for event in upstream.stream(OCR, request(page("blank-scan.pdf")))]
    assert [type(event) for event in events] == [Delta, Finish]
    assert events[0] == Delta(text=NOTHING_TO_READ)
    assert NOTHING_TO_READ in load_prompt("describe")


async def test_columns_come_one_after_the_other_and_the_layer_mends_the_spelling(upstream: LocalUpstream) -> None:
    with pypdfium2.PdfDocument(CORPUS / "two-columns.pdf") as document:
        layer = document[0].get_textpage().get_text_bounded()
    events = [event async for event in upstream.stream(OCR, request(page("two-columns.pdf"), layer))]
    assert isinstance(events[0], Delta)
    text = events[0].text
    assert "Two-Column Document with Lorem Ipsum" in text
    assert text.index("nissim rutrum") < text.index("Pellentesque cursus luctus") < text.index("pellentesque ante.")


async def test_a_table_without_rules_is_a_table(upstream: LocalUpstream) -> None:
    text = (await upstream.chat(OCR, request(page("borderless-table.pdf")))).text
    assert "SPARSE-2024-INV-1234" in text
    assert "| SKU-9201 |  | 780 | 778 |  | OK |" in text


async def test_a_script_that_it_can_not_read_is_taken_from_the_text_layer(upstream: LocalUpstream) -> None:
    reply = await upstream.chat(OCR, request(page("arabic-cid.pdf"), "انواع الخطوط العربية"))
    assert reply.text == "انواع الخطوط العربية"


async def test_bytes_that_are_no_image_are_refused_and_the_child_lives(
    upstream: LocalUpstream, pool: ChildPool
) -> None:
    with pytest.raises(UpstreamFailure, match="can't be decoded") as refused:
        await upstream.chat(OCR, request(b"\x89PNG\r\n\x1a\n" + b"\x00" * 40))
    assert refused.value.kind == "invalid_request"
    before = pool.pids
    out = io.BytesIO()
    Image.new("RGB", (400, 300), "white").save(out, "PNG")
    assert (await upstream.chat(OCR, request(out.getvalue()))).text == NOTHING_TO_READ
    assert pool.pids == before


async def test_a_child_killed_in_mid_page_fails_that_page_only(upstream: LocalUpstream, pool: ChildPool) -> None:
    image = page("scan.pdf")
    call = asyncio.create_task(upstream.chat(OCR, request(image)))
    while not pool.pids:  # noqa: ASYNC110 - the pool tells nobody when a child starts
        await asyncio.sleep(0.01)
    os.kill(pool.pids[0], signal.SIGKILL)
    with pytest.raises(UpstreamFailure, match="signal 9") as failed:
        await call
    assert failed.value.kind == "server_error"
    assert "Docling" in (await upstream.chat(OCR, request(image))).text


async def test_the_loop_goes_on_while_a_page_is_read(upstream: LocalUpstream) -> None:
    call = asyncio.create_task(upstream.chat(OCR, request(page("scan.pdf"))))
    longest = 0.0
    loop = asyncio.get_running_loop()
    while not call.done():
        before = loop.time()
        await asyncio.sleep(0.01)
        longest = max(longest, loop.time() - before)
    await call
    assert longest < 1.0


def test_a_child_dies_with_its_parent_in_mid_page(tmp_path: Path) -> None:
    image = tmp_path / "page.jpg"
    image.write_bytes(page("scan.pdf"))
    script = textwrap.dedent(
        """
        import asyncio, sys
        from pathlib import Path
        from pipeline.providers.local.pool import ChildPool

        async def main():
            pool = ChildPool(1, 1, 120.0)
            call = asyncio.create_task(pool.run({"text": ""}, Path(sys.argv[1]).read_bytes()))
            while not pool.pids:
                await asyncio.sleep(0.01)
            await asyncio.sleep(1.0)
            print(pool.pids[0], flush=True)
            await call
            await asyncio.sleep(60)

        asyncio.run(main())
        """
    )
    with subprocess.Popen([sys.executable, "-c", script, str(image)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
    for _ in range(200):
        if not _runs(child):
            return
        signal.sigtimedwait([], 0.05)
    pytest.fail(f"process {child} outlived its parent")


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_nothing_is_asked_of_the_network(tmp_path: Path) -> None:
    image = tmp_path / "page.jpg"
    image.write_bytes(page("scan.pdf"))
    script = textwrap.dedent(
        """
        import sys
        from pathlib import Path

        def refuse(event, args):
            if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
                raise SystemExit(f"network: {event} {args!r}")

        sys.addaudithook(refuse)
        from pipeline.providers.local.embeddings import WordVectors
        from pipeline.providers.local.ocr import OcrEngine

        lines, _, _ = OcrEngine(2).read(Path(sys.argv[1]).read_bytes())
        WordVectors().embed(["x"])
        print(len(lines))
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(image)],
        capture_output=True,
        text=True,
        env={"ORT_DISABLE_TELEMETRY": "1", "HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 3
    assert sorted(p.name for p in tmp_path.iterdir()) == ["page.jpg"]
