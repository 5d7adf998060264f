import pickle
from typing import Any

import pytest

import memdesc
from memdesc import RUNTIME, runtime_desc


@pytest.mark.parametrize(
    ("dims", "tag", "padded", "strides"),
    [
        # as oneDNN 3.13 answers
        ((RUNTIME, 3, 4), "abc", (RUNTIME, 3, 4), (12, 4, 1)),
        ((2, 3, RUNTIME), "abc", (2, 3, RUNTIME), (RUNTIME, RUNTIME, 1)),
        ((2, 3, RUNTIME), "aBc8b", (2, 8, RUNTIME), (RUNTIME, RUNTIME, 8)),
        ((RUNTIME, RUNTIME), "ba", (RUNTIME, RUNTIME), (1, RUNTIME)),
        ((2, 0, RUNTIME), "cba", (2, 0, RUNTIME), (1, 2, 2)),
        ((RUNTIME,), "a", (RUNTIME,), (1,)),
    ],
)
def test_strides_inside_an_unknown_dim_are_known(
    dims: Any, tag: str, padded: Any, strides: Any
) -> None:
    desc = runtime_desc(dims, "f32", tag)
    assert (desc.ndims, desc.padded_dims, desc.strides, desc.nbytes) == (
        len(dims),
        padded,
        strides,
        None,
    )
    assert eval(repr(desc), {"runtime_desc": runtime_desc, "memdesc": memdesc}) == desc
    assert pickle.loads(pickle.dumps(desc)) == desc
    assert hash(desc) == hash(runtime_desc(dims, "f32", desc.tag))


def test_the_layout_is_any_name_row_major_or_not_known() -> None:
    dims = (RUNTIME, 17, 5, 4)
    assert runtime_desc(dims, "f32") == runtime_desc(dims, "f32", "abcd")
    assert runtime_desc(dims, "f32", "NCHW16c") == runtime_desc(dims, "f32", "nChw16c")
    assert runtime_desc(dims, "f32", "torch.channels_last") == runtime_desc(dims, "f32", "nhwc")
    assert runtime_desc(dims, "f32", "*").tag is None
