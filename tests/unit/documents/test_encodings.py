"""Text is decoded as what it is, judged over the whole file."""

from __future__ import annotations

import time

import pytest

from pipeline.documents.encodings import decode, looks_like_text


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("utf-8", "Schlüssel 潮門"),
        ("utf-8-sig", "Schlüssel 潮門"),
        ("utf-16", "Schlüssel 潮門"),
        ("utf-16-le", "plain words without a mark"),
        ("utf-16-be", "plain words without a mark"),
        ("utf-32", "Schlüssel"),
        ("cp1252", "Der Schlüssel für die Schleuse hängt im Büro – 5 €."),
        ("cp1252", "L'été était très chaud. “Naïve” café."),
        ("cp1250", "Příliš žluťoučký kůň úpěl ďábelské ódy."),
        ("cp1251", "Руководство по эксплуатации шлюза."),
        ("koi8_r", "Руководство по эксплуатации шлюза."),
        ("cp866", "Руководство по эксплуатации шлюза."),
        ("iso8859_5", "Руководство по эксплуатации шлюза."),
        ("mac_cyrillic", "Руководство по эксплуатации шлюза."),
        ("koi8_u", "Посібник з експлуатації шлюзу, її перевірено."),
        ("cp1253", "Εγχειρίδιο λειτουργίας της πύλης."),
        ("cp737", "Εγχειρίδιο λειτουργίας της πύλης."),
        ("cp1255", "מדריך להפעלת השער. המשאבה נבדקה."),
        ("cp862", "מדריך להפעלת השער. המשאבה נבדקה."),
        ("iso8859_6", "دليل تشغيل بوابة المد وصيانة المضخة"),
        ("cp874", "คู่มือการใช้งานประตูน้ำ กรุงเทพมหานคร"),
        ("iso8859_2", "Protokół z posiedzenia zarządu. Płatność nastąpi w ciągu trzydziestu dni, zażółć gęślą jaźń."),
        ("cp852", "Protokół z posiedzenia zarządu. Płatność nastąpi w ciągu trzydziestu dni, zażółć gęślą jaźń."),
        ("cp1250", "Jegyzőkönyv az ülésről. A tető költsége, a fizetés harminc napon belül esedékes, tűz és fűtés."),
        ("cp1254", "Yönetim kurulu toplantı tutanağı. Ödeme otuz gün içinde yapılacaktır."),
        ("cp1257", "Valdybos posėdžio protokolas. Stogo priežiūros išlaidos, mokėjimas per trisdešimt dienų."),
        ("cp850", "Protokoll der Sitzung. Die Größe der Tür und die Kosten für die schöne Schleuse."),
        ("cp437", "Le procès-verbal du conseil. L'été était très chaud à côté de la porte."),
        ("mac_roman", "Protokoll der Sitzung. Die Größe der Tür und die Kosten für die schöne Schleuse."),
        ("iso8859_15", "Die Kosten für die Tür betragen 5 € im Jahr, dazu kommt die Größe."),
        ("cp932", "ﾀﾅｶ ｼｮｳｼﾞ,ﾌﾘｺﾐ"),
        ("cp1256", "دليل تشغيل بوابة المد"),
        ("cp932", "東京都港区の潮門操作手順。担当は佐藤です。"),
        ("cp932", "名前,年齢,住所\n佐藤太郎,30,東京\n髙橋淳,35,名古屋"),
        ("euc_jp", "潮門の操作手順について説明します。"),
        ("iso2022_jp", "潮門の操作手順。担当は佐藤です。\nGate 7"),
        ("iso2022_jp_ext", "ｹﾞｰﾄ 7"),
        ("gb18030", "潮汐闸门操作手册，值班人员：王小明。"),
        ("big5", "潮汐閘門操作手冊，值班人員：王小明。"),
        ("euc_kr", "조수 갑문 운영 지침서입니다."),
    ],
)
def test_the_usual_encodings_are_found(encoding: str, text: str) -> None:
    assert decode(text.encode(encoding)) == text


def test_one_late_byte_decides_a_file_of_ascii() -> None:
    text = "plain ascii line\n" * 40_000 + "and a café at the end\n"
    assert decode(text.encode("latin-1")) == text


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("名前,年齢\n佐藤太郎,17\n東京".encode()[:-1], "名前,年齢\n佐藤太郎,17\n東\ufffd"),
        ("Die Größe der Tür ist ".encode() + b"\xff wichtig", "Die Größe der Tür ist \ufffd wichtig"),
        ("Отчёт о проверке ".encode() + b"\xd0 " + "шлюза".encode(), "Отчёт о проверке \ufffd шлюза"),
        ('<meta charset="utf-8"><p>Größe'.encode() + b"\xc3</p>", '<meta charset="utf-8"><p>Größe\ufffd</p>'),
        ("café caf".encode() + b"\xc3", "café caf\ufffd"),
    ],
)
def test_a_bad_byte_in_utf_8_costs_only_its_character(data: bytes, text: str) -> None:
    assert decode(data, declares=True) == text


def test_legacy_text_with_a_byte_that_could_end_utf_8_stays_legacy() -> None:
    assert decode("un café".encode("latin-1")) == "un café"
    assert decode("Übergröße, schön".encode("cp1252")) == "Übergröße, schön"


@pytest.mark.parametrize(
    ("encoding", "words"),
    [
        ("cp932", "名古屋"),
        ("cp932", "名古屋市の水門"),
        ("gb18030", "北京市"),
        ("euc_kr", "서울시"),
        ("big5", "臺北市的閘門"),
        ("cp1251", "Москва"),
        ("koi8_r", "Москва"),
        ("cp1253", "Αθήνα"),
        ("cp1255", "ירושלים"),
        ("cp1256", "القاهرة"),
        ("cp866", "Москва"),
        ("iso8859_5", "Москва"),
        ("cp874", "กรุงเทพ"),
        ("cp1257", "Šiauliai"),
        ("cp1252", "Þórður frá Ísafirði"),
        ("latin-1", "Málaga"),
    ],
)
@pytest.mark.parametrize("rows", [0, 1_000, 20_000])
def test_a_few_late_words_are_not_lost_among_ascii(encoding: str, words: str, rows: int) -> None:
    text = "".join(f"{n},n{n}\n" for n in range(rows)) + f"{rows},{words}\n"
    assert decode(text.encode(encoding)) == text


def test_what_is_near_is_judged_in_a_line_of_megabytes() -> None:
    text = "plain words " * 200_000 + "名古屋市の水門"
    assert decode(text.encode("cp932")) == text


def test_a_declared_encoding_is_believed_if_it_decodes() -> None:
    page = '<meta charset="windows-1251"><p>Шлюз</p>'
    assert decode(page.encode("cp1251"), declares=True) == page
    wrong = '<meta charset="utf-8"><p>schöne Aussicht</p>'
    assert decode(wrong.encode("cp1252"), declares=True) == wrong


def test_latin_1_means_windows_1252_as_in_browsers() -> None:
    assert "€" in decode(b'<meta charset="iso-8859-1">\x80', declares=True)


@pytest.mark.parametrize(
    ("label", "encoding", "words"),
    [
        ("windows-874", "cp874", "กรุงเทพ"),
        ("dos-866", "cp866", "Протокол"),
        ("iso-8859-8-i", "iso8859-8", "שלום עולם"),
        ("iso-8859-9", "cp1254", "“İğne” ığdır"),
        ("x-mac-cyrillic", "mac-cyrillic", "Протокол"),
        ("x-sjis", "cp932", "髙橋 ①"),
        ("x-euc-jp", "euc_jp", "名前"),
        ("ks_c_5601-1987", "cp949", "똠방각하"),
        ("EUC-KR", "cp949", "똠방각하"),
        ("gb2312", "gb18030", "朱镕基"),
        ("Big5", "big5hkscs", "香港喺度"),
        ("utf-16", "utf-8", "größe"),
    ],
)
def test_a_declared_label_means_what_browsers_take_it_for(label: str, encoding: str, words: str) -> None:
    page = f'<meta charset="{label}"><p>{words}</p> '
    assert decode(page.encode(encoding), declares=True) == page


def test_what_windows_added_to_japanese_is_read_in_seven_bits_too() -> None:
    assert decode(b"\x1b$B|bKL-!\x1b(B 7") == "髙北① 7"


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("iso2022_kr", "이사회 회의록. Gate 7\n지하실 펌프를 점검했습니다.\n"),
        ("hz", "董事会会议纪要。Gate 7\n水泵已检查。\n"),
    ],
)
def test_korean_and_chinese_in_seven_bits_need_no_declaration(encoding: str, text: str) -> None:
    assert looks_like_text(text.encode(encoding))
    assert decode(text.encode(encoding)) == text


def test_braces_after_a_tilde_are_no_chinese() -> None:
    for text in ("~{name~} and ~{a~} of a template", "x = ~{y~} # ~~", "~{ab~}"):
        assert decode(text.encode()) == text


def test_nothing_raises() -> None:
    assert decode(b"") == ""
    assert isinstance(decode(bytes(range(256)) * 3), str)
    assert isinstance(decode(b'<?xml encoding="no-such"?>\xff\xfe\x80', declares=True), str)


@pytest.mark.parametrize("name", ["idna", "punycode", "unicode_escape", "raw_unicode_escape", "base64", "utf-7"])
def test_a_codec_that_is_no_charset_is_not_believed(name: str) -> None:
    """IDNA takes minutes for a file of this size, and string escapes would be carried out."""
    page = f'<?xml version="1.0" encoding="{name}"?>' + "plain words+AGE- \\x41 \n" * 10_000
    assert decode(page.encode(), declares=True) == page


def test_a_long_text_in_a_legacy_encoding_is_judged_at_once() -> None:
    """A search that began anew at each letter took minutes for what a novel has of them."""
    text = "L'été était très chaud, et la porte fermée.\n" * 5_000
    began = time.process_time()
    assert decode(text.encode("latin-1")) == text
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    "text",
    [
        "The lantern gate opens at six each morning.\n",
        "Отчёт о проверке шлюза",
        "Отчёт о проверке шлюза\n\nФонарный шлюз открывается каждое утро в 6 часов.\n",
        "潮汐闸门检查报告\n\n灯笼闸门每天早上六点开启，晚上关闭。\n",
        "潮汐水門点検報告書\nランタン水門は毎朝六時に開き、夕方に閉じます。\n",
        "조수 관문 점검 보고서\n랜턴 수문은 매일 아침 여섯 시에 열립니다.\n",
    ],
)
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("times", [1, 500])
def test_utf_16_and_utf_32_need_no_mark(text: str, encoding: str, times: int) -> None:
    data = (text * times).encode(encoding)
    assert looks_like_text(data[:65_536])
    assert decode(data) == text * times


@pytest.mark.parametrize(
    "text", ["a,b\n1,x\0y\n2,z\n", "plain\0 words here, and some more", "Отчёт о про\0верке шлюза"]
)
def test_a_stray_zero_makes_no_utf_16(text: str) -> None:
    assert decode(text.encode()) == text
    assert decode(f" {text}".encode()) == f" {text}"


def test_escapes_that_colour_a_terminal_are_no_japanese() -> None:
    assert decode(b"\x1b[31mERROR\x1b[0m gate 7") == "\x1b[31mERROR\x1b[0m gate 7"
    assert decode(b"\x1b$B and then nothing Japanese \x7f") == "\x1b$B and then nothing Japanese \x7f"
