import copy
import pickle
from contextlib import suppress
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import memdesc
from memdesc import Layout, MemdescError, MemoryDesc, array_desc, data_type, memory_desc
from memdesc.desc import desc_of
from memdesc.names import Name
from memdesc.verbose import from_verbose, to_verbose
from tests.named import NAMES, uneven_desc
from tests.oracles import offsets
from tests.pictures import cells, check, halves
from tests.strategies import data_types, descs, descs_of, dims, swizzled_descs, tag_descs

# what a repr may name
SCOPE = vars(memdesc)


@given(descs() | swizzled_descs(), st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_every_copy_is_equal_and_hashes_the_same(desc: MemoryDesc, protocol: int) -> None:
    assert eval(repr(desc), SCOPE) == desc
    assert MemoryDesc.from_json(desc.to_json()) == desc
    for copied in (
        pickle.loads(pickle.dumps(desc, protocol)),
        copy.copy(desc),
        copy.deepcopy(desc),
    ):
        assert copied == desc
        assert hash(copied) == hash(desc)
        assert repr(copied) == repr(desc)


@given(st.data())
def test_a_verbose_string_reads_back_where_it_holds_the_padding(data: st.DataObject) -> None:
    is_by_tag = data.draw(st.booleans())
    desc = data.draw(tag_descs(data.draw(dims()), any_digits=False) if is_by_tag else descs())
    desc = desc.with_dtype(data.draw(data_types()))
    try:
        text = to_verbose(desc)
    except MemdescError:  # outside of oneDNN's fields
        return
    steps = [desc.layout.outer(dim).step for dim in range(desc.ndims)]
    whole = tuple(-(-size // step) * step for size, step in zip(desc.dims, steps, strict=True))
    read = None
    with suppress(MemdescError):
        read = from_verbose(text, desc.dims, offset0=desc.offset0)
    holds_padding = not desc.is_dense and desc.padded_dims in {desc.dims, whole}
    assert read == desc or not (is_by_tag or holds_padding)
    if isinstance(read, MemoryDesc):
        assert to_verbose(read).split(":")[:2] == text.split(":")[:2]
        assert read.inner_blks == desc.inner_blks


@given(st.data(), st.booleans())
def test_every_name_makes_an_equal_descriptor_and_a_layout_by_a_tag_has_a_tag(
    data: st.DataObject, is_by_tag: bool
) -> None:
    desc = data.draw(tag_descs(data.draw(dims())) if is_by_tag else descs() | swizzled_descs())
    names = desc.names()
    assert len(set(names)) == len(names)
    for name in names:
        assert memory_desc(desc.dims, desc.dtype, name.text) == desc
    assert not is_by_tag or [name for name in names if name.domain == "any"]


@given(st.data())
def test_equal_descriptors_have_equal_hashes_and_offsets(data: st.DataObject) -> None:
    sizes = data.draw(dims(max_nelems=64))
    a, b = (data.draw(descs_of(sizes, max_nelems=128)) for _ in range(2))
    if a == b:
        assert hash(a) == hash(b)
        assert offsets(a) == offsets(b)
        assert (a.nbytes, a.min_nbytes) == (b.nbytes, b.min_nbytes)
    assert (a == b) == (b == a)
    assert (a != b) == (b != a)
    # two that put elements at other places are different
    assert offsets(a) == offsets(b) or a != b


@given(st.data())
def test_the_stride_of_a_dim_of_one_changes_nothing(data: st.DataObject) -> None:
    desc = data.draw(descs(max_nelems=128))
    unit = [dim for dim, size in enumerate(desc.padded_dims) if size == 1]
    assume(desc.layout.fused() is None and unit)
    blocks = [
        b._replace(stride=data.draw(st.integers(0, 99))) if b.axis in unit and b.extent == 1 else b
        for b in desc.blocks
    ]
    other = desc_of(desc.dtype, Layout(desc.dims, desc.axes, tuple(blocks), desc.offset0))
    assert other == desc
    assert hash(other) == hash(desc)
    assert offsets(other) == offsets(desc)


@given(descs() | swizzled_descs(), data_types())
def test_another_data_type_keeps_every_offset_and_can_be_undone(
    desc: MemoryDesc, dtype: str
) -> None:
    other = desc.with_dtype(dtype)
    assert other.layout == desc.layout
    assert other.dtype is data_type(dtype)
    assert other.with_dtype(desc.dtype) == desc
    assert other.min_nbytes == (data_type(dtype).nbytes(desc.layout.last + 1) if desc.nelems else 0)


@given(descs(max_nelems=256) | swizzled_descs())
def test_the_counts_belong_together(desc: MemoryDesc) -> None:
    assert desc.layout.last == max(offsets(desc).values(), default=desc.offset0)
    assert desc.nelems <= desc.padded_nelems
    assert desc.has_padding == (desc.nelems < desc.padded_nelems)
    assert round(desc.padding_overhead * desc.nelems) == desc.padded_nelems
    assert desc.nelems or desc.padding_overhead == 1
    assert desc.ndims == len(desc.dims) == len(desc.padded_dims) == len(desc.padded_offsets)
    assert sorted(dim for axis in desc.axes for dim in axis.dims) == list(range(desc.ndims))


@given(descs() | swizzled_descs())
def test_fields_of_onednn_make_the_same_descriptor_by_hand(desc: MemoryDesc) -> None:
    names = ("inner_blks", "inner_idxs", "strides", "padded_dims", "offset0")
    try:
        fields: dict[str, Any] = {name: getattr(desc, name) for name in names}
    except MemdescError:
        return
    assert memory_desc(desc.dims, desc.dtype, **fields) == desc


@given(st.data())
def test_an_array_and_its_descriptor_agree_on_every_element(data: st.DataObject) -> None:
    shape = data.draw(dims(max_ndims=4, max_nelems=200))
    owner = np.arange(np.prod(shape, dtype=int), dtype=np.int32)
    x = owner.reshape(shape).transpose(data.draw(st.permutations(range(len(shape)))))
    for axis in range(x.ndim):
        step = data.draw(st.sampled_from((1, 1, -1, 2, -3)))
        x = x[(slice(None),) * axis + (slice(None, None, step),)]
    desc = array_desc(x)
    assert desc.dims == x.shape
    if not x.size:
        return
    first = (np.lib.array_utils.byte_bounds(x)[0] - owner.ctypes.data) // 4
    for index in np.ndindex(x.shape):
        assert owner[first + desc.offset(index)] == x[index]


@given(st.sampled_from(NAMES), st.randoms(use_true_random=False))
def test_a_descriptor_by_a_known_name_has_this_name_among_its_names(
    name: Name, random: Random
) -> None:
    if desc := uneven_desc(name.text, random):
        assert name in desc.names()
        assert MemoryDesc.from_json(desc.to_json()) == desc
        assert eval(repr(desc), SCOPE) == desc


@pytest.mark.campaign
def test_every_known_name_is_among_the_names_of_uneven_sizes() -> None:
    random = Random(0)
    described = {name: desc for name in NAMES if (desc := uneven_desc(name.text, random))}
    assert len(described) > 1800
    assert [name for name, desc in described.items() if name not in desc.names()] == []


# A picture is slow to draw and to read back, so a third of the examples is enough.
@settings(max_examples=settings().max_examples // 3)
@given(desc=descs())
def test_every_number_of_a_picture_is_the_offset_of_its_index(desc: MemoryDesc) -> None:
    picture = desc.show()
    grid, memory = cells(picture.svg)
    check(desc, grid, memory)
    assert picture == desc.show()
    # the halves of a page have the same cells
    drawn = [seen.hover for half in halves(picture) for side in cells(half) for seen in side]
    assert drawn == [seen.hover for seen in [*grid, *memory]]
    if max(desc.padded_dims) <= 4 and desc.padded_nelems <= 64:
        shown = {seen.index for seen in grid if not seen.is_hatched}
        assert shown == set(product(*map(range, desc.dims)))
