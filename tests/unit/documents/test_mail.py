"""Mails: what is text, what is a file of its own, and what stands in the text as a picture."""

from __future__ import annotations

import base64
import io
import quopri
from email.message import EmailMessage

import pytest
from PIL import Image, ImageDraw, ImageFont

from pipeline.documents import media, office
from pipeline.documents.attachments import attachments, may_have_attachments
from pipeline.documents.mail import read_mail
from pipeline.domain.document import ParsedPage
from pipeline.domain.errors import RejectedInput
from tests.unit.documents.conftest import MakeJob

PNG = b"\x89PNG\r\n\x1a\n" + bytes(60)


def a_mail(text: str = "See below.") -> EmailMessage:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "a@quay.example", "b@quay.example", "The berth plan"
    mail.set_content(text)
    return mail


def files(mail: EmailMessage | bytes) -> dict[str, bytes]:
    return {one.name: one.content() for one in attachments(bytes(mail))}


def test_attachments_come_out_as_they_went_in() -> None:
    mail = a_mail()
    mail.add_attachment(b"%PDF-1.7 x", maintype="application", subtype="pdf", filename="plan.pdf")
    mail.add_attachment("a,b\n1,2\n", subtype="csv", filename="größe.csv")
    assert files(mail) == {"plan.pdf": b"%PDF-1.7 x", "größe.csv": b"a,b\n1,2\n"}
    _, head, body, _ = read_mail(bytes(mail))
    assert "**Attachments**: plan.pdf, größe.csv" in head
    assert body.strip() == "See below."


SIGNED = bytes.fromhex("06092a864886f70d010702")
DATA = bytes.fromhex("06092a864886f70d010701")


def sealed(body: bytes) -> bytes:
    """A mail whose body is what S/MIME makes of one."""
    return (
        b"From: a@quay.example\nSubject: The berth plan\nMIME-Version: 1.0\nContent-Type: application/pkcs7-mime;\n"
        b" smime-type=signed-data; name=smime.p7m\nContent-Transfer-Encoding: base64\n"
        b"Content-Disposition: attachment; filename=smime.p7m\n\n" + base64.encodebytes(body)
    )


@pytest.mark.parametrize("in_pieces", [True, False])
def test_a_mail_that_is_wrapped_in_its_signature_is_read_with_its_attachments(in_pieces: bool) -> None:
    inner = a_mail("High at nine.")
    inner.add_attachment(b"a,b", maintype="text", subtype="csv", filename="a.csv")
    for name in ("From", "To", "Subject"):
        del inner[name]
    content = bytes(inner)
    if in_pieces:
        ends, pieces = bytes(2), [content[:100], content[100:]]
        held = b"\xa0\x80\x24\x80" + b"".join(b"\x04\x82" + len(one).to_bytes(2) + one for one in pieces) + ends * 2
    else:
        held = b"\x04\x82" + len(content).to_bytes(2) + content
        held = b"\xa0\x82" + len(held).to_bytes(2) + held
    wrapped = sealed(b"0\x80" + SIGNED + b"\xa0\x80\x30\x80\x02\x01\x01" + b"0\x80" + DATA + held + b"a signature")
    assert files(wrapped) == {"a.csv": b"a,b"}
    subject, head, body, _ = read_mail(wrapped)
    assert subject == "The berth plan"
    assert "**Attachments**: a.csv" in head
    assert body.strip() == "High at nine."


@pytest.mark.parametrize(
    "body",
    [
        b"0\x80" + SIGNED.replace(b"\x02", b"\x03") + bytes(40),
        b"0\x80" + SIGNED + DATA,
        b"0\x80" + SIGNED + DATA + b"\xa0\x80\x24\x80\x04\x84",
        b"0\x80" + SIGNED + DATA + b"\xa0\x80\x24\x80" + bytes(4000),
        b"",
    ],
)
def test_a_sealed_mail_that_cannot_be_opened_names_what_it_holds(body: bytes) -> None:
    assert files(sealed(body)) == {"smime.p7m": body}
    _, head, text, _ = read_mail(sealed(body))
    assert "smime.p7m" in head
    assert not text


def test_a_mail_in_a_mail_is_one_file_as_it_was_written() -> None:
    inner = (
        b"From: x@y.z\nTo: q@y.z\nsubject: odd    spaces\nX-Odd: \xff\nX-Long: "
        + b"long " * 60
        + b"\nDate: never\n\nFrom here on, inner text.\n"
    )
    outer = (
        b'From: a@b.c\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="B"\n\n'
        b"--B\nContent-Type: text/plain\n\nForwarded.\n--B\nContent-Type: message/rfc822\n\n" + inner + b"\n--B--\n"
    )
    (name, content), *rest = files(outer).items()
    assert (name, rest) == ("message-2.eml", [])
    assert content == inner


@pytest.mark.parametrize("coding", ["base64", "quoted-printable"])
def test_a_mail_in_a_mail_may_be_coded_though_it_should_not_be(coding: str) -> None:
    inner = "From: x@y.z\nSubject: größer\n\nInner text, which is = long enough for two lines of the coding.\n".encode()
    coded = base64.encodebytes(inner) if coding == "base64" else quopri.encodestring(inner)
    outer = (
        b'From: a@b.c\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="B"\n\n'
        b"--B\nContent-Type: message/rfc822\nContent-Transfer-Encoding: "
        + coding.encode()
        + b"\n\n"
        + coded
        + b"\n--B--\n"
    )
    assert [content.rstrip() for content in files(outer).values()] == [inner.rstrip()]


def test_names_are_decoded_shortened_to_their_last_part_and_told_apart() -> None:
    def part(header: str) -> str:
        return f"--B\nContent-Type: application/pdf\nContent-Disposition: attachment; {header}\n\nx\n"

    mail = 'From: a@b.c\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="B"\n\n' + "".join(
        part(header)
        for header in (
            'filename="../../etc/passwd"',
            'filename="C:\\\\letters\\\\may.pdf"',
            "filename*=utf-8''Pl%C3%A4ne.pdf",
            'filename="=?utf-8?B?UGzDpG5lLnBkZg==?="',
            'filename="a\n b.pdf"',
            'filename=""',
            "size=3",
        )
    )
    assert list(files((mail + "--B--\n").encode())) == [
        "passwd", "may.pdf", "Pläne.pdf", "Pläne (2).pdf", "a b.pdf", "part-6", "part-7",
    ]  # fmt: skip


def test_bodies_and_signatures_are_no_attachments() -> None:
    mail = a_mail()
    mail.add_alternative("<p>See <b>below</b>.</p>", subtype="html")
    assert files(mail) == {}
    mail.add_attachment(b"0", maintype="application", subtype="pkcs7-signature", filename="smime.p7s")
    assert files(mail) == {}


def test_a_picture_that_the_html_shows_stands_in_it_and_another_is_an_attachment() -> None:
    mail = a_mail("Only words.")
    mail.add_alternative('<p>Look:</p><img src="cid:one@x"><p>End.</p>', subtype="html")
    html = mail.get_payload(1)
    assert isinstance(html, EmailMessage)
    html.add_related(PNG, "image", "png", cid="<one@x>", filename="logo.png")
    html.add_related(PNG + b"2", "image", "png", cid="<two@x>", filename="other.png")
    assert files(mail) == {"other.png": PNG + b"2"}
    _, _, body, is_html = read_mail(bytes(mail))
    assert is_html
    assert 'src="data:image/png;base64,iVBOR' in body


def test_text_that_follows_an_attachment_stays_in_the_body() -> None:
    mail = a_mail("First.")
    mail.add_attachment(PNG, maintype="image", subtype="png", filename="p.png")
    mail.attach(a_part("Second."))
    _, _, body, _ = read_mail(bytes(mail))
    assert body.split() == ["First.", "Second."]
    assert list(files(mail)) == ["p.png"]


INVOICE = "<p>Invoice 4711 for the lantern gate, <b>due Fri</b>day</p><table><tr><td>EUR 930</td></tr></table>"
LETTER = "The gate opens at six. Bring the long ladder and both lamps. Ask Maud for the key."


@pytest.mark.parametrize(
    ("plain", "html", "is_html"),
    [
        ("Your client does not show HTML.", INVOICE, True),
        ("Read it here: https://mail.example/a-b-c/d-e-f/g-h-i?j=k&l=m&n=o", INVOICE, True),
        (LETTER[:22], f"<p>{LETTER}</p>", True),
        (LETTER, f"<style>p {{ a: b }}</style><h1>The gate</h1><p>{LETTER}</p><a>Unsubscribe</a>", False),
        ("A stub, and one that goes on and on about what a mail reader should be able to show", INVOICE, False),
        (
            "閘門は六時に\n開きます。鍵は\n事務所です。",
            "<p>閘門は六時に開きます。鍵は事務所です。</p><p>以上</p>",
            False,
        ),
    ],
)
def test_the_html_is_the_body_where_it_says_clearly_more_than_the_plain_text(
    plain: str, html: str, is_html: bool
) -> None:
    mail = a_mail(plain)
    mail.add_alternative(html, subtype="html")
    mail.add_attachment(b"x", maintype="application", subtype="pdf", filename="plan.pdf")
    mail.attach(a_part("A footer, 1 < 2."))
    _, _, body, found = read_mail(bytes(mail))
    assert found is is_html
    assert ("<pre>A footer, 1 &lt; 2.</pre>" if is_html else "A footer, 1 < 2.") in body
    assert (html if is_html else plain) in body


def test_html_that_follows_the_plain_text_takes_no_place_of_it() -> None:
    mail = a_mail("Short.")
    mail.make_mixed()
    footer = EmailMessage()
    footer.set_content(INVOICE, subtype="html")
    mail.attach(footer)
    _, _, body, is_html = read_mail(bytes(mail))
    assert not is_html
    assert body.startswith("Short.")
    assert "Invoice 4711" in body


def a_part(text: str) -> EmailMessage:
    part = EmailMessage()
    part.set_content(text)
    del part["MIME-Version"]
    return part


@pytest.mark.parametrize(
    ("raw", "hint"),
    [
        (b"From: a\nContent-Type: text/plain\n\nwords", False),
        (b'Content-Type: multipart/alternative; boundary="B"\n\n--B\nContent-Type: text/html\n\n--B--', False),
        (b"Content-Type:\r\n  image/png\n\nx", True),
        (b'Content-Type: text/plain;\n name="a.txt"\n\nx', True),
        (b"content-disposition: attachment\n\nx", True),
        (b"Content-Type: text/plain; name*0*=utf-8''a\n\nx", True),
        (b"Content-Type: message/rfc822\n\nx", True),
    ],
)
def test_a_glance_tells_which_mails_have_none(raw: bytes, hint: bool) -> None:
    assert may_have_attachments(raw) is hint


def test_parts_without_end_are_refused() -> None:
    mail = b'From: a\nContent-Type: multipart/mixed; boundary="B"\n\n' + b"--B\n\n\n" * 10_100 + b"--B--"
    with pytest.raises(RejectedInput, match="parts"):
        attachments(mail)


def test_parts_in_parts_without_end_are_an_answer_and_no_crash() -> None:
    mail = b"From: a\n" + b"".join(
        b'Content-Type: multipart/mixed; boundary="B%d"\n\n--B%d\n' % (n, n) for n in range(1500)
    )
    with pytest.raises(RejectedInput, match="recursion"):
        attachments(mail)


def test_a_picture_in_the_html_is_a_page_where_it_stands(make_job: MakeJob) -> None:
    picture, out = Image.new("L", (300, 100), 255), io.BytesIO()
    ImageDraw.Draw(picture).text((10, 10), "GAUGE 7", font=ImageFont.load_default(60), fill=0)
    picture.save(out, "PNG")
    mail = a_mail("Only words.")
    mail.add_alternative('<p>Before.</p><p><img src="cid:one@x" alt="the gauge"></p><p>After.</p>', subtype="html")
    html = mail.get_payload(1)
    assert isinstance(html, EmailMessage)
    html.add_related(out.getvalue(), "image", "png", cid="<one@x>")

    pages = [one for one in office.read(make_job(bytes(mail), media.EML)) if isinstance(one, ParsedPage)]

    before, shown, after = pages
    assert before.text.endswith("Before.\n\n[Image: the gauge]")
    assert shown.image is not None
    assert (shown.image.width_px, shown.image.height_px) == (300, 100)
    assert after.text == "After."


@pytest.mark.parametrize(
    ("label", "encoding", "words"),
    [
        ("iso-8859-1", "cp1252", "“Grüße” – €5"),
        ("ks_c_5601-1987", "cp949", "똠방각하 회의록"),
        ("gb2312", "gb18030", "朱镕基"),
        ("windows-874", "cp874", "กรุงเทพ"),
        ("us-ascii", "utf-8", "Grüße"),
    ],
)
def test_mailers_labels_are_taken_for_what_they_mean(label: str, encoding: str, words: str) -> None:
    coded = base64.b64encode(words.encode(encoding)).decode()
    mail = (
        f"From: a@b.c\nSubject: =?{label}?B?{coded}?=\nMIME-Version: 1.0\n"
        f"Content-Type: text/plain; charset={label}\nContent-Transfer-Encoding: base64\n\n{coded}\n"
    )
    subject, _, body, _ = read_mail(mail.encode())
    assert body == words
    if label != "us-ascii":
        assert subject == words


def test_headers_of_raw_latin_1_are_read() -> None:
    mail = "From: José <a@b.c>\nSubject: Grüße aus Köln\n\nschöne Grüße\n".encode("latin-1")
    subject, head, body, _ = read_mail(mail)
    assert (subject, body.strip()) == ("Grüße aus Köln", "schöne Grüße")
    assert "José" in head


@pytest.mark.parametrize("charset", ["; charset=koi8-r", ""])
def test_html_that_names_its_own_encoding_is_read_once(make_job: MakeJob, charset: str) -> None:
    page = '<html><head><meta charset="koi8-r"></head><body><p>Протокол заседания</p></body></html>'
    mail = f"From: a@b.c\nMIME-Version: 1.0\nContent-Type: text/html{charset}\n\n{page}".encode("koi8-r")
    (text,) = [event.text for event in office.read(make_job(mail, media.EML)) if isinstance(event, ParsedPage)]
    assert "Протокол заседания" in text


def _in_pieces(kind: str, *parts: str) -> bytes:
    head = f"From: a@b.c\nSubject: s\nMIME-Version: 1.0\nContent-Type: {kind}; boundary=B\n\n"
    return (head + "".join(f"--B\nContent-Type: {part}\n" for part in parts) + "--B--\n").encode()


@pytest.mark.parametrize(
    ("kind", "parts", "words"),
    [
        (
            "multipart/signed",
            (
                "multipart/mixed; boundary=C\n\n--C\nContent-Type: text/plain\n\nFirst.\n"
                "--C\nContent-Type: text/plain\n\nSecond.\n--C--\n",
                "application/pkcs7-signature; name=smime.p7s\n\nx",
            ),
            "First. Second.",
        ),
        ("multipart/mixed", ("text/html\n\n<p>First.</p>", "text/html\n\n<p>Second.</p>"), "First. Second."),
        ("multipart/mixed", ("text/plain\n\nFirst.", "text/html\n\n<p>Second.</p>"), "First. Second."),
        (
            "multipart/report",
            (
                "text/plain\n\nNot delivered.",
                "message/delivery-status\n\nReporting-MTA: dns; x\n\nStatus: 5.1.1\nDiagnostic-Code: 550 unknown\n",
                "text/rfc822-headers\n\nSubject: The berth plan\n",
            ),
            "Not delivered. Reporting-MTA: dns; x Status: 5.1.1 Diagnostic-Code: 550 unknown Subject: The berth plan",
        ),
        ("multipart/mixed", ("text/calendar\n\nSUMMARY:Berths",), "SUMMARY:Berths"),
        ("multipart/mixed", ("text/enriched\n\n<bold>First</bold> word.",), "First word."),
        ("multipart/alternative", ("text/plain\n\nThe same.", "text/html\n\n<p>The same.</p>"), "The same."),
    ],
)
def test_no_text_of_a_mail_in_pieces_is_lost(make_job: MakeJob, kind: str, parts: tuple[str, ...], words: str) -> None:
    job = make_job(_in_pieces(kind, *parts), media.EML)
    (text,) = [event.text for event in office.read(job) if isinstance(event, ParsedPage)]
    assert " ".join(text.partition("\n\n")[2].split()) == words


def test_a_mail_in_pieces_that_names_no_boundary_keeps_its_words() -> None:
    mail = b"From: a@b.c\nMIME-Version: 1.0\nContent-Type: multipart/mixed\n\nWords all the same.\n"
    assert read_mail(mail)[2].strip() == "Words all the same."
