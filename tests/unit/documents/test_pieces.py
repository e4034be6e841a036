"""The quick ways of making pieces give what the rules give word by word."""

from __future__ import annotations

import random

from pipeline.documents.pieces import Piece, adjoins, pieces_of_line

HEIGHT = 800.0
Box = tuple[float, float, float, float]


def by_the_rules(words: list[str], boxes: list[Box]) -> list[Piece]:
    pieces: list[Piece] = []
    for text, (x0, y0, x1, y1) in zip(words, boxes, strict=True):
        word = Piece(text, x0, y0, x1, y1)
        if pieces and adjoins(pieces[-1], word):
            pieces[-1].take(word)
        else:
            pieces.append(word)
    return pieces


def made(words: list[str], boxes: list[Box]) -> list[Piece]:
    sides = [(x0, HEIGHT - y0, x1, HEIGHT - y1) for x0, y0, x1, y1 in boxes]
    # The first and the last character of a word have its left and its right half.
    ends = [
        end
        for left, top, right, bottom in sides
        for end in ((left, top, (left + right) / 2, bottom), ((left + right) / 2, top, right, bottom))
    ]
    lefts, tops, rights, bottoms = ([end[side] for end in ends] for side in range(4))
    return pieces_of_line(words, lefts, tops, rights, bottoms, HEIGHT)


def seen(pieces: list[Piece]) -> list[tuple[object, ...]]:
    return [(one.text, one.x0, one.y0, one.x1, one.y1, one.placed_words()) for one in pieces]


def a_line(rng: random.Random) -> tuple[list[str], list[Box]]:
    words, boxes = [], []
    x, y = 0.0, 100.0
    uneven = rng.random() < 0.5
    for _ in range(rng.randint(1, 9)):
        words.append(rng.choice(["tide", "gate", "a", ")", ".", ", and", "2"]))
        width, high = 5.0 * len(words[-1]), 10.0 if not uneven else rng.choice([10.0, 10.0, 6.0, 14.0])
        raised = rng.choice([0.0, 0.0, -4.0, 12.0]) if uneven else 0.0
        boxes.append((x, y + raised, x + width, y + raised + high))
        x += width + rng.choice([3.0, 3.0, 0.0, 12.0, 12.5, 13.0, *([-40.0] if uneven else [])])
    return words, boxes


def test_a_line_made_at_once_is_the_one_that_the_rules_make_word_by_word() -> None:
    rng = random.Random(5)
    made_at_once = 0
    for _ in range(3000):
        words, boxes = a_line(rng)
        pieces = made(words, boxes)
        assert seen(pieces) == seen(by_the_rules(words, boxes)), (words, boxes)
        made_at_once += len(pieces) == 1 and len(words) > 3
    assert made_at_once > 100
