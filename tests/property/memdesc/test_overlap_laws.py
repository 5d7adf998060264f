import contextlib
import re
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from memdesc import Axis, Block, Layout, MemdescError
from memdesc.diophantine import SearchLimitError, Term, solve
from memdesc.errors import OverlapError
from memdesc.layout import layout_by_strides
from memdesc.overlap import check_overlap
from tests.differential.nesting import check_nesting
from tests.strategies import dims, tags
from tests.work import count_calls


@st.composite
def small_layouts(draw: st.DrawFn) -> Layout:
    """Draw strides small enough to overlap often: negative, zero, with blocks and padding."""
    sizes = draw(dims(max_ndims=4, max_nelems=60))
    tag = draw(tags(len(sizes), 8))
    steps = tag.block_sizes
    strides = tuple(draw(st.integers(-2, 30)) for _ in sizes)
    inner = tuple((digit.extent, digit.axis) for digit in tag.digits if digit.extent)
    padded = [-(-size // step) * step for size, step in zip(sizes, steps, strict=True)]
    more = draw(st.integers(0, 4 * len(sizes)))
    if more < len(sizes) and sizes[more]:
        padded[more] += steps[more]
    return layout_by_strides(sizes, strides, inner, tuple(padded), 10**4)


@st.composite
def fused_layouts(draw: st.DrawFn) -> Layout:
    """Draw two dims that are one axis, cut into blocks of 2, 3 and 4."""
    strides = draw(st.tuples(*[st.integers(1, 9)] * 3))
    cuts = zip((12, 4, 1), (2, 3, 4), strides, strict=True)
    blocks = tuple(Block(0, step, extent, stride) for step, extent, stride in cuts)
    return Layout((4, 6), (Axis((0, 1), 24),), blocks)


def overlaps(layout: Layout) -> bool:
    """Return whether two padded indices, broadcast digits left aside, share an element."""
    loops = [block for block in layout.blocks if block.stride]
    digits = product(*(range(block.extent) for block in loops))
    places = [
        sum(digit * block.stride for digit, block in zip(index, loops, strict=True))
        for index in digits
    ]
    return len(places) > len(set(places))


def refusal(layout: Layout) -> str:
    """Return the message of `check_overlap`, or nothing."""
    try:
        check_overlap(layout)
    except OverlapError as error:
        return str(error)
    return ""


@given(small_layouts())
def test_strides_are_refused_exactly_where_two_padded_indices_share_an_element(
    layout: Layout,
) -> None:
    assert ("share one element" in refusal(layout)) == bool(layout.nelems and overlaps(layout))


@given(small_layouts() | fused_layouts())
def test_a_refusal_shows_two_indices_of_one_offset_and_how_they_differ(layout: Layout) -> None:
    said = refusal(layout)
    shown = re.findall(r"\(([0-9]+(?:, [0-9]+|,)*)\)", said.split(": ")[0])
    indices = [tuple(int(i) for i in index.split(",") if i) for index in shown]
    assert len(set(indices)) == len(indices) == (2 if said else 0)
    assert len({layout.offset(index) for index in indices}) <= 1
    differences = re.findall(r"([+-][0-9]+) in [a-l] \(dim [0-9]+\) \(stride (-?[0-9]+)\)", said)
    assert sum(int(difference) * int(stride) for difference, stride in differences) == 0
    assert all(int(difference) for difference, _ in differences)
    assert bool(differences) == bool(said) or layout.fused() is not None


@given(small_layouts())
def test_strides_that_nest_do_not_overlap(layout: Layout) -> None:
    with contextlib.suppress(OverlapError):
        check_nesting(layout, 32)
        if min(layout.strides()) >= 0:
            assert not refusal(layout)


@given(st.data())
def test_the_search_finds_an_answer_exactly_where_there_is_one(data: st.DataObject) -> None:
    bounds = data.draw(
        st.lists(
            st.tuples(st.integers(-40, 40).filter(bool), st.integers(-3, 0), st.integers(0, 3)),
            max_size=4,
        )
    )
    target, trivial = data.draw(st.integers(-60, 60)), data.draw(st.booleans())
    terms = [Term(*bound) for bound in bounds]
    answers = {
        values
        for values in product(*(range(low, high + 1) for _, low, high in bounds))
        if sum(value * stride for value, (stride, _, _) in zip(values, bounds, strict=True))
        == target
        and (trivial or any(values))
    }
    found = solve(terms, target, trivial=trivial)
    assert found in answers if answers else found is None


# A search tries 20,000 values, and a check makes several searches.
_MANY_CALLS = 1_000_000


@given(
    st.lists(st.tuples(st.integers(1, 10**12), st.integers(1, 10**6)), min_size=1, max_size=12),
    st.integers(-(10**15), 10**15),
)
def test_the_search_ends_soon_whatever_the_strides(
    loops: list[tuple[int, int]], target: int
) -> None:
    def search() -> None:
        with contextlib.suppress(SearchLimitError):
            solve([Term(stride, -extent, extent) for stride, extent in loops], target)

    assert count_calls(search) < _MANY_CALLS


@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=12), st.integers(2, 30))
def test_the_check_ends_soon_whatever_the_strides(strides: list[int], size: int) -> None:
    def check() -> None:
        with contextlib.suppress(MemdescError):
            check_overlap(layout_by_strides((size,) * len(strides), tuple(strides), offset0=2**50))

    assert count_calls(check) < _MANY_CALLS
