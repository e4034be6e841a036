"""Questions that people would ask of the examples and of the corpus, each with where its answer stands."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CORPUS_QUESTIONS", "EXAMPLE_QUESTIONS", "Question"]


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and what a page must say to answer it.

    Attributes:
        file: The document that answers.
        answer: Words of the pages that do, as they were printed; a page that OCR misread is not found by them, and then
            all pages of the file count.
    """

    text: str
    file: str
    answer: str


_HANDBOOK, _SCAN, _ROTA = "tide-gate-handbook.pdf", "sluice-inspection-1987.pdf", "night-watch.docx"
_PUMPS, _INCIDENT, _NOTICE = "pump-house.html", "incident-2025-11-14.md", "slipway-notice.png"
_STORM_ZH, _PUMPS_ZH, _FERRY_KO = "storm-inspection-zh.pdf", "pump-house-zh.docx", "ferry-notice-ko.pdf"

EXAMPLE_QUESTIONS = (
    Question("at which level does the north gate close?", _HANDBOOK, "2.10 m"),
    Question("How long does it take to open Cobbler's Sluice?", _HANDBOOK, "11 min"),
    Question("why must the gate stay put while the dredger is inside?", _HANDBOOK, "lifted the seal twice"),
    Question("how do I shut a gate by hand when there is no hydraulic pressure", _HANDBOOK, "red cabinet"),
    Question("Who has to decide when a large surge is forecast?", _HANDBOOK, "flood warden"),
    Question("what was wrong with the lifting chain?", _SCAN, "hand's breadth"),
    Question("damage by shipworm", _SCAN, "shipworm"),
    Question("Who made the new chain links?", _SCAN, "Tregarth"),
    Question("crack in the masonry", _SCAN, "tell-tales"),
    Question("When may I not use the slipway?", _NOTICE, "dredging"),
    Question("where can boats buy fuel", _NOTICE, "Fuel is sold"),
    Question("telephone number of the harbour master", _NOTICE, "01632"),
    Question("who keeps watch on Friday night?", _ROTA, "Jory Tamm"),
    Question("which radio channel does the gate listen on?", _ROTA, "CHANNEL 74"),
    Question("what should I do in fog?", _ROTA, "sound the horn"),
    Question("Hollow sound at the pump house door", _ROTA, "hollow sound"),
    Question("How do I start the diesel engine of the pump?", _PUMPS, "sea cock"),
    Question("how many litres does Little Bess pump?", _PUMPS, "95"),
    Question("a smell of rotten eggs from the batteries", _PUMPS, "boost"),
    Question("what blocked the trash screen?", _INCIDENT, "kelp"),
    Question("At which difference does the alarm sound now?", _INCIDENT, "now sounds at 0.12"),
    Question("cost of the flooding", _INCIDENT, "2,350"),
    Question("风暴之夜外港的水位是多少？", _STORM_ZH, "外港水位"),
    Question("链条", _STORM_ZH, "链条"),
    Question("多久记录一次潮位", _STORM_ZH, "潮位"),
    Question("谁是检查员", _STORM_ZH, "检查员"),
    Question("怎样启动柴油泵？", _PUMPS_ZH, "海水阀"),
    Question("大贝丝每秒抽多少升", _PUMPS_ZH, "310"),
    Question("硫磺", _PUMPS_ZH, "硫磺"),
    Question("充电器 强充", _PUMPS_ZH, "浮充"),
    Question("연락선은 어디에서 떠나는가?", _FERRY_KO, "등대 부두"),
    Question("안개", _FERRY_KO, "안개가"),
    Question("자전거 요금", _FERRY_KO, "자전거는"),
    Question("선장은 누구인가", _FERRY_KO, "선장"),
)

CORPUS_QUESTIONS = (
    Question("How many bottles of water were delivered?", "duplicate-page.pdf", "20,000 bottles"),
    Question("toolkit for document layout analysis with deep learning", "owner-locked.pdf", "LayoutParser"),
    Question("which university is Melissa Dell from?", "owner-locked.pdf", "Melissa Dell"),
    Question("new accounting rules on income tax disclosures", "earnings.pdf", "income tax disclosures"),
    Question("standard about significant expenses in operating segments", "earnings.pdf", "operating segments"),
    Question("a tribute to people who think differently and change the world", "one-paragraph.pdf", "troublemakers"),
    Question("who is crazy enough to change the world?", "one-paragraph.pdf", "crazy enough"),
    Question("population of Denmark", "two-columns.pdf", "Copenhagen"),
    Question("official languages of Belgium", "two-columns.pdf", "Brussels"),
    Question("proteomics clustering baseline", "wide-table.pdf", "Proteomics"),
    Question("score of the ReACT agent on the chemistry tasks", "wide-table.pdf", "Hypothesizer"),
    Question("which tool converts PDF documents to JSON or Markdown?", "scan.pdf", "Docling bundles"),
    Question("walking quietly along a path", "scan-1900s.pdf", "tip-toeing"),
    Question("All human beings are born free and equal", "docx-named-doc.doc", "born free"),
    Question("wie schmeckte der schönen Frau der Kuchen?", "cp1252.html", "köstlich"),
    Question("combien coûte un café au lait ?", "cp1252.html", "3,50"),
    Question("rotated page fixture", "rotated-page-90.pdf", "Rotated page fixture"),
    Question("미래 보안기술 전망", "lone-surrogate.pdf", "미래 보안기술 전망"),
    Question("오탐율을 줄이는 AI 기술", "lone-surrogate.pdf", "오탐율"),
    Question("포인트 적립 제외 대상", "korean-tables.pdf", "적립 제외 대상"),
    Question("주유", "korean-tables.pdf", "주유소"),
    Question("빅포인트의 유효기간은 몇 년인가", "korean-tables.pdf", "유효기간"),
    Question("名古屋", "cp932.csv", "名古屋"),
    Question("佐藤さんの年齢", "cp932.csv", "佐藤太郎"),
    Question("أنواع الخطوط العربية", "arabic-cid.pdf", "الخطوط العربية"),
    Question("البرمجة بلغة Python", "right-to-left.pdf", "Python"),
    Question("variance of SKU-4563 in the warehouse", "borderless-table.pdf", "SKU-4563"),
    Question("the successor of Eadwig as king of the English", "text-rotated-90.pdf", "Eadwig"),
    Question("shipping companies with an office in Tokyo", "indirect-rotation.pdf", "Tokyo"),
    Question("MSC Mediterranean in Geneva", "indirect-rotation.pdf", "Geneva"),
    Question("recording a sequence with the sequencer", "four-orientations.pdf", "Recording a Sequence"),
)
