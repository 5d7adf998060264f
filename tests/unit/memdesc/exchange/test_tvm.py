import pytest

from memdesc import memory_desc, parse_layout
from memdesc.exchange import written

_DIMS = (2, 17, 5, 4)


@pytest.mark.parametrize(
    ("tag", "string", "index_map"),
    [
        ("nChw16c", "NCHW16c", "lambda n, c, h, w: [n, c // 16, h, w, c % 16]"),
        ("a4bBcd", "N4cCHW", "lambda n, c, h, w: [n, c % 4, c // 4, h, w]"),
        (
            "ABcd4b16a4b",
            None,
            "lambda n, c, h, w: [n // 16, c // 16, h, w, c // 4 % 4, n % 16, c % 4]",
        ),
        ("ab(CD)4(cd)", None, "lambda n, c, h, w: [n, c, (h * 4 + w) // 4, (h * 4 + w) % 4]"),
    ],
)
def test_a_layout_is_a_string_and_an_index_map(
    tag: str, string: str | None, index_map: str
) -> None:
    desc = memory_desc(_DIMS, "f32", tag)
    texts = written(desc, "tvm", letters="nchw")
    assert texts == ((string, index_map) if string else (index_map,))
    for text in texts:
        assert parse_layout(f"tvm:{text}", _DIMS, letters="nchw") == desc


def test_dims_are_ordered_by_the_alphabet_or_by_a_family_of_letters() -> None:
    for text, tag in [("NHWC", "acdb"), ("ACDB", "acdb"), ("HWIO", "cdba"), ("NCHW16c", "aBcd16b")]:
        assert parse_layout(f"tvm:{text}", _DIMS) == memory_desc(_DIMS, "f32", tag)
    assert memory_desc(_DIMS, "f32", "aBcd16b").to_notation("tvm") == "ABCD16b"


def test_blocks_that_are_one_physical_dim_are_blocks() -> None:
    assert parse_layout("tvm:OIHW[2i4o]", _DIMS) == memory_desc(_DIMS, "f32", "ABcd2b4a")
    assert parse_layout("tvm:NCHW1c", _DIMS) == memory_desc(_DIMS, "f32", "abcd")


@pytest.mark.parametrize(
    "text",
    [
        "lambda x, y: (x // 4, y, x % 4)",
        "T.index_map(lambda x, y: (x // T.int64(4), y, x % T.int64(4)))",
        "tvm.tirx.IndexMap.from_func(lambda x, y: [x // 4, y, x % 8 % 4], ndim=2)",
        "lambda x, y: [x // 2 // 2, y, x % 4]",
        "lambda x, y: [x // 4, y, x % 4, x % 4 // 4]",
    ],
)
def test_index_maps_are_read_as_written_by_hand_and_as_printed(text: str) -> None:
    assert parse_layout(f"tvm:{text}", (9, 3)) == memory_desc((9, 3), "f32", "Ab4a")
