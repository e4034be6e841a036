"""What is no answer: a refusal, a circle, a text that lost the page's words; and honest answers that look alike."""

from __future__ import annotations

import pytest

from pipeline.stages.fidelity import lost_words, repeated
from pipeline.stages.refusals import refusal_in

REFUSALS = [
    "I can't see an image.",
    "I'm sorry, but I can\u2019t view or process images directly.",
    "I am unable to view the image you provided. Could you please describe it?",
    "Sorry, I cannot access the attached picture.",
    "I'm sorry. I can't see any image in this conversation.",
    "# Page 1\n\nI don't see any image attached to your message. Please upload it again.",
    "It seems that no image was provided. Please attach the page you would like me to transcribe.",
    "There is no image to transcribe.",
    "The image is not visible to me.",
    "Unfortunately, the image did not load.",
    "As an AI language model, I don't have the ability to see images.",
    "I'm a text-based model, so I can't look at pictures.",
    "I'm sorry, I can't assist with that request.",
    "I can\u2019t help with that.",
    "I cannot read the document you sent.",
    "Please provide the image of the page so that I can transcribe it.",
    "Es tut mir leid, aber ich kann das Bild leider nicht sehen.",
    "Leider kann ich keine Bilder anzeigen.",
    "Ich kann die Seite nicht lesen, bitte laden Sie sie erneut hoch.",
    "Als KI-Sprachmodell habe ich keinen Zugriff auf Bilder.",
    "Tut mir leid, dabei kann ich nicht helfen.",
    "Je suis désolé, mais je ne peux pas voir l'image que vous avez envoyée.",
    "Désolé, je ne vois pas d'image.",
    "En tant qu'intelligence artificielle, je ne peux pas analyser les images.",
    "Lo siento, pero no puedo ver la imagen.",
    "No puedo ayudar con eso.",
    "Desculpe, mas não consigo visualizar a imagem.",
    "Mi dispiace, ma non posso vedere l'immagine.",
    "Het spijt me, maar ik kan de afbeelding niet zien.",
    "Przepraszam, ale nie mogę zobaczyć obrazu.",
    "К сожалению, я не могу просмотреть это изображение.",
    "Извините, я не вижу изображения.",
    "Üzgünüm, bu görseli göremiyorum.",
    "عذراً، لا أستطيع رؤية الصورة.",
    "抱歉，我无法查看图片。",
    "對不起，我看不到您提供的圖片。",
    "作为一个人工智能语言模型，我不能直接查看图像。",
    "您没有上传图片。",
    "申し訳ありませんが、画像を確認することができません。",
    "画像が添付されていません。",
    "AIとして、この内容にはお答えできません。",
    "죄송합니다. 이미지를 볼 수 없습니다.",
    "죄송하지만 이 요청은 도와드릴 수 없습니다.",
]

HONEST = [
    "# Opening hours\n\nThe gate is open from six to ten.",
    "I'm sorry to hear of your loss. The funeral is on Monday at ten.",
    "Sorry, we are closed.",
    "Image 1: the gate house, seen from the north.",
    'Figure: a sign that reads "I can\'t see an image".',
    "> I'm sorry, but I can't view images.",
    "- I can't see the image\n- The image is upside down",
    "The image sensor is not calibrated; see section 4.",
    "The visual inspection was not carried out.",
    "Sehr geehrte Damen und Herren,\n\nich kann am Montag leider nicht kommen.",
    "Das Bild zeigt die Schleuse bei Niedrigwasser.",
    "Aucune modification n'est permise.",
    "No hay agua en el canal.",
    "无法开启闸门时，请联系值班人员。",
    "圖一：水閘。",
    "画像処理の基礎\n\nこの章では画像の前処理を学ぶ。",
    "이미지 처리 개론",
    "I can see the image of the sluice from here.",
    "Please provide two copies of the form.",
    "But the gate did not open.",
]


@pytest.mark.parametrize("answer", REFUSALS)
def test_a_refusal_is_told_in_its_words(answer: str) -> None:
    refused = refusal_in(answer)
    assert refused
    assert refused in answer


@pytest.mark.parametrize("answer", HONEST)
def test_a_page_is_no_refusal(answer: str) -> None:
    assert refusal_in(answer) is None


@pytest.mark.parametrize("answer", REFUSALS)
def test_a_page_that_says_it_itself_is_no_refusal(answer: str) -> None:
    page = f"Chapter 7. What assistants say\n{answer}\nThat is what they say."
    assert refusal_in(answer, page.replace(" ", "  ")) is None


def test_a_page_with_such_a_sentence_in_its_midst_is_no_refusal_though_nothing_is_known_of_it() -> None:
    story = "The keeper rang the office. The line was bad that night, and the lamp went out twice. " * 4
    assert refusal_in(f"{story}\n\nI can't see an image, she wrote. {story}") is None
    assert refusal_in(f"# Letters\n\n{story}\n\n{REFUSALS[0]}") is None


def test_a_long_answer_that_opens_with_a_refusal_is_one_unless_it_might_be_a_letter() -> None:
    text = "The gate opens at six and closes at ten, when the tide has turned. " * 20
    assert refusal_in(f"I can't view the image directly, but this is what its text layer says.\n\n{text}")
    assert refusal_in(f"I am sorry that I cannot read your document this week.\n\n{text}") is None


def test_a_refusal_with_a_misread_word_is_found_in_the_page() -> None:
    page = "I'm sorry, but I cannot view the irnage that you have sent to us by post today."
    assert refusal_in("I'm sorry, but I cannot view the image that you have sent to us by post today.", page) is None


WORDS = (
    "The northern gate opens below one metre eighty-five and closes above two metres ten; its keeper writes the level "
    "into the book every quarter of an hour, rings the office when the wind turns, and locks the house at night."
)


def test_an_answer_with_few_of_the_pages_words_lost_them() -> None:
    assert "lost" in (lost_words(WORDS, "The page is about a gate and its keeper.") or "")
    assert lost_words(WORDS, f"# Gates\n\n{WORDS.upper()}") is None


def test_half_of_the_words_may_go() -> None:
    words = [f"word{n}" for n in range(100)]
    assert lost_words(" ".join(words), " ".join(words[:50])) is None
    assert lost_words(" ".join(words), " ".join(words[:49])) == "the answer lost 51% of the page's 100 words"


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        (
            "The main-\ntenance of the drain-\nage is sched-\nuled every other fort-\nnight",
            "Maintenance of the drainage is scheduled every other fortnight.",
        ),
        ("eﬃcient oﬃces ﬂood ﬁnally suﬃce", "Efficient offices flood finally suffice"),
        ("Größe Häuser Äpfel über Öfen Übung", "Grosse Hauser Apfel uber Ofen Ubung"),
        ("第一章 水闸的管理与维护制度", "# 第一章\n\n水闸的管理\n与维护制度"),
        ("水門の管理は毎日行われる。\n記録は台帳に残す。", "水門の管理は毎日行われる。記録は台帳に残す。"),
        ("수문 관리는 매일 이루어진다", "수문 관리는\n매일 이루어진다"),
    ],
)
def test_spelling_and_breaks_are_no_loss(source: str, answer: str) -> None:
    assert lost_words(source, answer) is None


def test_chinese_that_was_left_out_is_lost() -> None:
    assert lost_words("水闸每天早上六点开启，晚上十点关闭，由值班人员记录水位。", "这一页介绍了一座建筑。")


def test_a_few_words_may_be_marks_of_the_page_but_not_all_of_them() -> None:
    assert lost_words("Page 12 of 90 Confidential Draft Report", "Report") is None
    assert lost_words("Confidential draft report twelve", "Here you are.")
    assert lost_words("Page 12", "Figure: a gate.") is None


def test_a_circle_is_told_wherever_it_is() -> None:
    circle = "The gate opens at six and it closes at ten. " * 20
    assert repeated(circle)
    assert repeated(f"{WORDS}\n\n{circle}\n\n{WORDS}")
    assert repeated("\n".join(f"{n}. The gate opens at six." for n in range(40)))
    assert repeated("水闸开启。" * 60)
    assert "30 times 'gate keeper level book wind'" in (repeated("gate keeper level book wind " * 30) or "")


def test_rows_that_are_alike_are_no_circle() -> None:
    form = "\n".join("| Name | Signature | Date |" for _ in range(30))
    assert repeated(form) is None
    assert repeated("\n".join("| 0.00 | 0.00 | 0.00 | 0.00 |" for _ in range(60))) is None
    assert repeated(f"{WORDS} " * 4) is None


def test_a_page_that_goes_in_circles_itself_may_be_written_down() -> None:
    verse = "Row, row, row your boat gently down the stream. " * 20
    assert repeated(verse)
    assert repeated(verse, verse) is None
    assert repeated(verse * 5, verse)
