from __future__ import annotations

import pytest

from memdesc import UnknownFormatError, UnsupportedFormatError, from_notation, memory_desc
from memdesc.exchange import written


def test_the_metadata_has_the_physical_shape() -> None:
    desc = memory_desc((4, 5, 3), "f16", "cab")
    texts = written(desc, "arrow")
    fields = "value_type=halffloat, shape=[3,4,5], permutation=[1,2,0]"
    assert texts == (
        '{"shape":[3,4,5],"permutation":[1,2,0]}',
        f"extension<arrow.fixed_shape_tensor[{fields}]>",
    )
    for text in texts:
        assert from_notation(text, "arrow", dtype="f16") == desc
    assert from_notation(texts[1], "arrow") == desc
    assert written(memory_desc((4, 5), "s8", "ab"), "arrow")[0] == '{"shape":[4,5]}'


def test_names_of_dims_are_left_out() -> None:
    desc = memory_desc((4, 5), "f32", "ab")
    assert from_notation('{"shape": [4, 5], "dim_names": ["h", "w"]}', "arrow") == desc
    text = "extension<arrow.fixed_shape_tensor[value_type=float, shape=[4,5], dim_names=[h,w]]>"
    assert from_notation(text, "arrow", (4, 5)) == desc


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "with lists of integers"),
        ("[4, 5]", "with lists of integers"),
        ('{"permutation":[0]}', "with lists of integers"),
        ('{"shape":[4,"5"]}', "with lists of integers"),
        ('{"shape":4}', "with lists of integers"),
        ('{"shape":[4,5],"permutation":[0,0]}', "permutation \\[0, 0\\] is not 0 to 1"),
        ("extension<arrow.fixed_shape_tensor[value_type=float, x]>", "with lists of integers"),
    ],
)
def test_other_strings_are_refused_with_the_rule(text: str, reason: str) -> None:
    with pytest.raises(UnknownFormatError, match=reason):
        from_notation(text, "arrow")


def test_types_and_layouts_that_arrow_does_not_have_are_refused() -> None:
    text = "extension<arrow.fixed_shape_tensor[value_type=bool, shape=[4,5]]>"
    with pytest.raises(UnsupportedFormatError, match="has the value type bool"):
        from_notation(text, "arrow")
    for desc, reason in [
        (memory_desc((4, 5), "bf16", "ab"), "bf16 has no value type"),
        (memory_desc((4, 5), "f32", "Ab4a"), "is blocked"),
        (memory_desc((4, 5), "f32", strides=(6, 1)), "leave gaps"),
    ]:
        with pytest.raises(UnsupportedFormatError, match=reason):
            written(desc, "arrow")
