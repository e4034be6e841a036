"""Which cells stand over two of another row, and where each cell goes: as the slow look at every pair would say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipeline.documents.lines import _aligned, _over_two
from pipeline.documents.pieces import Piece, Row


@st.composite
def rows(draw: st.DrawFn) -> list[Row]:
    """Rows of cells side by side, with gaps of at least a point."""
    made = []
    for y in range(draw(st.integers(1, 6))):
        edges = sorted(draw(st.sets(st.integers(0, 40), min_size=2, max_size=12)))
        edges = edges[: len(edges) // 2 * 2]
        cells = zip(edges[::2], edges[1::2], strict=True)
        made.append(Row([Piece(f"c{x0}", float(x0), 12.0 * y, float(x1), 12.0 * y + 10) for x0, x1 in cells]))
    return made


@given(rows())
def test_a_cell_over_two_neighbours_is_told(table: list[Row]) -> None:
    spans_two = _over_two(table)
    for piece in (piece for row in table for piece in row.pieces):
        under = [sum(one.x0 < piece.x1 and one.x1 > piece.x0 for one in row.pieces) for row in table]
        assert spans_two(piece) == (max(under) > 1)


@given(rows())
def test_no_cell_is_lost_or_moved_before_another_of_its_row(table: list[Row]) -> None:
    for row, line in zip(table, _aligned(table), strict=True):
        assert line.split() == [piece.text for piece in row.pieces]
