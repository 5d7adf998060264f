"""Tensors saved and read back, what a file cannot hold, and files that are refused."""

import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import reorder
from memdesc import MemdescError, memory_desc
from memdesc.record import record_desc
from reorder import Memory, Quantized, load, load_all, save
from reorder.checkpoints import save_raw
from reorder.records import Record
from tests.files import read_metadata, write_metadata
from tests.work import limited_memory

_FORMATS = ["x.safetensors", "x.npz"]


def _blocked() -> Memory:
    return reorder.reorder(np.ones((1, 3, 2, 2), np.float32), "nChw8c")


# What is written


def test_a_plain_tensor_is_an_array_of_numpy(tmp_path: Path) -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for given in (x, x.T.copy().T, x[:, ::-1]):
        save(tmp_path / "x.npy", given)
        assert np.array_equal(np.load(tmp_path / "x.npy"), given)
    columns = reorder.reorder(x, "cba")
    save(tmp_path / "x.npy", columns)
    assert np.load(tmp_path / "x.npy").flags.f_contiguous
    assert np.array_equal(np.load(tmp_path / "x.npy"), x)
    assert load(tmp_path / "x.npy").desc == columns.desc


@pytest.mark.parametrize(
    "memory",
    [
        Memory(memory_desc((1, 3, 2, 2), "f32", "nChw8c")),
        Memory(memory_desc((1, 3, 2, 2), "f32", "nhwc")),
        Memory(memory_desc((2, 3), "f32", strides=(4, 1))),
        Memory(memory_desc((2, 3), "f32", strides=(3, 1), offset0=1)),
        Memory(memory_desc((2, 3), "bf16")),
        Memory(memory_desc((2, 3), "f8_e4m3")),
        Memory(memory_desc((2, 3), "u4")),
        Record(record_desc((1, 32), "q4_0"), np.arange(18, dtype=np.uint8)),
    ],
    ids=repr,
)
def test_what_numpy_cannot_express_is_refused_with_the_ways_out(
    tmp_path: Path, memory: Memory | Record
) -> None:
    with pytest.raises(
        MemdescError,
        match=r"has no place for .* \.safetensors or a \.npz.*reorder\.checkpoints\.save_raw",
    ):
        save(tmp_path / "x.npy", memory)
    assert not list(tmp_path.iterdir())
    for name in _FORMATS:
        save(tmp_path / name, memory)
        again = load(tmp_path / name, type(memory))
        assert (again.desc, again.data.tobytes()) == (memory.desc, memory.data.tobytes())


def test_a_npy_holds_one_tensor_without_a_name(tmp_path: Path) -> None:
    for given in ({}, {"x": np.ones(3)}, {"x": np.ones(3), "y": np.ones(3)}):
        with pytest.raises(MemdescError, match="holds one tensor without a name"):
            save(tmp_path / "x.npy", given)
    q = reorder.quantize(np.ones((2, 3), np.float32), "s8")
    with pytest.raises(MemdescError, match="holds one tensor, not 3"):
        save(tmp_path / "x.npy", q)


@pytest.mark.parametrize("name", ["x", "x.bin", "x.gguf", "x.onnx", "x.npy.json", "npz"])
def test_a_name_that_says_no_format_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(MemdescError, match=r"ends neither in \.safetensors nor in \.npz"):
        save(tmp_path / name, _blocked())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("given", [None, 3, "x", [1, 2], [("x", np.ones(3))], object()])
def test_what_is_not_a_tensor_is_refused(tmp_path: Path, given: Any) -> None:
    for value in (given, {"x": given}):
        with pytest.raises(MemdescError, match="cannot be saved: x must be a Memory"):
            save(tmp_path / "x.npz", value)
    assert not list(tmp_path.iterdir())


def test_a_tensor_without_a_shape_is_refused(tmp_path: Path) -> None:
    class Nested:
        """Nested tensors of torch raise where others have a shape, and export nothing."""

        def __dlpack__(self, **_: Any) -> Any:
            msg = "no sizes"
            raise RuntimeError(msg)

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

        @property
        def shape(self) -> Any:
            return self.__dlpack__()

    with pytest.raises(MemdescError, match="the Nested exports no array by DLPack: no sizes"):
        save(tmp_path / "x.npz", Nested())


class _Scalar:
    """A tensor without dims, as torch exports it."""

    shape = ()

    def __init__(self, array: Any) -> None:
        self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__
        self._array = array

    def reshape(self, *shape: int) -> Any:
        return self._array.reshape(*shape)


@pytest.mark.parametrize("dtype", ["f16", "u8", "bf16", "s4"])
@pytest.mark.parametrize("name", _FORMATS)
def test_a_swizzled_tensor_is_its_bytes_and_a_descriptor_with_the_swizzle(
    tmp_path: Path, name: str, dtype: str
) -> None:
    plain = memory_desc((7, 40), dtype)
    tile = memory_desc((7, 40), dtype, "Sw<2,3,3> o 0 o (8,64):(64,1)")
    content = np.random.default_rng(5).integers(0, 256, plain.nbytes, dtype=np.uint8)
    memory = reorder.reorder(reorder.Memory(plain, content), tile)
    reorder.save(tmp_path / name, memory)
    found = reorder.load(tmp_path / name)
    assert found.desc == tile
    assert np.array_equal(found.data, memory.data)


@pytest.mark.parametrize("name", [*_FORMATS, "x.npy"])
@pytest.mark.parametrize("scalar", [np.int64(7), np.array(7), _Scalar(np.array(7))])
def test_a_scalar_is_saved(tmp_path: Path, name: str, scalar: Any) -> None:
    save(tmp_path / name, scalar)
    assert load(tmp_path / name).numpy() == [7]
    if name.endswith("npy"):
        assert np.load(tmp_path / name).shape == ()


def test_another_zip_is_not_an_empty_one(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("model/data.pkl", b"")
    other = tmp_path / "other.npz"
    with zipfile.ZipFile(other, "w") as file:
        file.writestr("notes.txt", b"")
    for read in (load, load_all, reorder.open_checkpoint):
        with pytest.raises(MemdescError, match=r"is a file of torch\.save.*torch\.load"):
            read(path)
        with pytest.raises(MemdescError, match=r"none of its 1 members is a \.npy"):
            read(other)
    np.savez(path.with_suffix(".npz"))
    assert load_all(path.with_suffix(".npz")) == {}


def test_a_tensor_that_repeats_elements_is_refused(tmp_path: Path) -> None:
    repeated = Memory(memory_desc((4, 3), "f32", strides=(0, 1)))
    for name in (*_FORMATS, "x.npy"):
        with pytest.raises(MemdescError, match=r"repeats elements.*reorder it to 'plain'"):
            save(tmp_path / name, repeated)


def test_raw_bytes_are_those_of_the_buffer(tmp_path: Path) -> None:
    memory = _blocked()
    save_raw(tmp_path / "x.bin", memory)
    assert (tmp_path / "x.bin").read_bytes() == memory.data.tobytes()
    short = memory_desc((3, 4), "u8", strides=(6, 1))
    save_raw(tmp_path / "x.bin", Memory(short, np.ones(short.min_nbytes, np.uint8)))
    assert (tmp_path / "x.bin").stat().st_size == short.nbytes
    for name in ("x.npy", "x.npz", "x.safetensors", "x.gguf"):
        with pytest.raises(MemdescError, match=r"would hold raw bytes.*call it a \.bin"):
            save_raw(tmp_path / name, memory)
    with pytest.raises(MemdescError, match="save_raw takes a Memory, not ndarray"):
        save_raw(tmp_path / "y.bin", np.ones(3))  # type: ignore[arg-type] # what a caller might pass
    assert [each.name for each in tmp_path.iterdir()] == ["x.bin"]


# What is read back


@pytest.mark.parametrize("name", _FORMATS)
def test_a_quantised_tensor_is_read_back(tmp_path: Path, name: str) -> None:
    x = np.random.default_rng(0).random((4, 32, 8), np.float32)
    given = {
        "one": reorder.quantize(x, "u8"),
        "axis": reorder.quantize(x, "s8", axis=0, dst="bca"),
        "groups": reorder.quantize(x, "u4", axis=(1, 2), groups=(16, 1)),
        "f64": reorder.quantize(x.astype(np.float64), "s8", axis=(0, 2)),
        "f8": reorder.quantize(x, "f8_e4m3", axis=1),
    }
    save(tmp_path / name, {**given, "plain": x})
    found = load_all(tmp_path / name, Quantized)
    assert found.keys() == given.keys()
    for key, q in given.items():
        again = found[key]
        assert again.memory.desc == q.memory.desc
        assert again.memory.data.tobytes() == q.memory.data.tobytes()
        assert (again.axis, again.groups) == (q.axis, q.groups)
        for one, other in ((again.scales, q.scales), (again.zero_points, q.zero_points)):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            assert np.array_equal(one, other)
        assert np.array_equal(reorder.dequantize(again).numpy(), reorder.dequantize(q).numpy())
        save(tmp_path / f"one-{name}", q)
        assert load(tmp_path / f"one-{name}", Quantized).memory.desc == q.memory.desc


@pytest.mark.parametrize("name", _FORMATS)
def test_load_reads_the_one_tensor_and_names_several(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    save(path, _blocked())
    assert load(path).desc == _blocked().desc
    save(path, {"w": _blocked()})
    assert load(path).desc == _blocked().desc
    save(path, {"w": _blocked(), "b": np.ones(3)})
    with pytest.raises(MemdescError, match=r"has 2 tensors: (w, b|b, w); reorder\.load_all reads"):
        load(path)
    save(path, {})
    assert load_all(path) == {}
    with pytest.raises(MemdescError, match="has no tensors"):
        load(path)
    save(path, reorder.quantize(np.ones((2, 3), np.float32), "s8"))
    with pytest.raises(MemdescError, match=r"holds a Quantized, not a Memory; read it with load\("):
        load(path)
    with pytest.raises(MemdescError, match="holds a Quantized, not a Record"):
        load(path, Record)
    with pytest.raises(MemdescError, match=r"kind must be reorder\.Memory, \.Quantized or"):
        load(path, dict)  # type: ignore[type-var] # what a caller might pass


def test_a_record_that_a_file_cannot_name_is_refused(tmp_path: Path) -> None:
    desc = record_desc((1, 32), "q4_0")
    for other, reason in (
        (replace(desc, name=""), "has no name"),
        (replace(desc, name="q4_1"), "is not the record of that name"),
    ):
        with pytest.raises(MemdescError, match=reason):
            save(tmp_path / "x.safetensors", Record(other))
    assert not list(tmp_path.iterdir())


_VALUE = {"name": "w", "quantized": {"axis": [], "groups": []}}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (1, "is not a JSON object"),
        ({}, "does not say which tensors belong"),
        (_VALUE, "does not say which tensors belong"),
        (_VALUE | {"tensors": {"memory": "other"}}, "does not say which tensors belong"),
        (_VALUE | {"tensors": {"memory": "w", "scales": "none"}}, "there is no 'none'"),
        (_VALUE | {"tensors": {"memory": "w", "scales": 3}}, "there is no 3"),
        (_VALUE | {"tensors": {"memory": "w"}}, "does not say what scales"),
        (_VALUE | {"tensors": {"memory": "w", "scales": "w"}}, "does not say which tensors belong"),
        (_VALUE | {"quantized": 1, "tensors": {"memory": "w"}}, "does not say what scales"),
        ({"name": "w", "tensors": {"data": "w"}}, "name of a record must be a string"),
        ({"name": "w", "record": "none", "tensors": {"a": "w"}}, "dims"),
        ({"name": "w", "record": "awq", "dims": [8, 8], "tensors": {"a": "w"}}, "tensors"),
        ({"name": "b", "record": "q4_0", "dims": [32], "tensors": {"a": "w"}}, "no tensor 'data'"),
    ],
)
def test_a_damaged_description_of_several_tensors_is_refused(
    tmp_path: Path, value: Any, reason: str
) -> None:
    path = tmp_path / "x.safetensors"
    save(path, {"w": np.ones((2, 3), np.float32), "b": np.ones(3)})
    fields = {"schema": 1, "dtype": "f32", "dims": [2, 3], "offset0": 0, "padded_offsets": [0, 0]}
    fields |= {"extra": None, "padded_dims": [2, 3], "strides": [3, 1]}
    fields |= {"inner_blks": [], "inner_idxs": [], "value": value}
    write_metadata(path, {"memdesc.w": json.dumps(fields)})
    with pytest.raises(MemdescError, match=reason):
        load_all(path)


def test_two_tensors_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save(path, {"w": reorder.quantize(np.ones((4, 8), np.float32), "s8"), "b": np.ones(3)})
    metadata = read_metadata(path)
    metadata["memdesc.w"] = metadata["memdesc.w"].replace('"name": "w"', '"name": "b"')
    write_metadata(path, metadata)
    with pytest.raises(MemdescError, match="two tensors are called 'b'"):
        load_all(path)


@pytest.mark.parametrize("ending", ["scale", "zero_point"])
@pytest.mark.parametrize(
    ("axis", "groups", "dims", "dtype"),
    [
        ((0, 1), (1, 4), (8,), "f32"),
        ((0, 1), (1, 4), (8, 8), "u4"),
        ((0, 1), (1, 4), (2, 4), "f32"),
        (None, (), (4,), "u8"),
        (None, (), (8,), "u4"),
    ],
)
def test_scales_that_are_not_a_plain_array_are_refused(
    tmp_path: Path, ending: str, axis: Any, groups: Any, dims: Any, dtype: str
) -> None:
    path = tmp_path / "x.safetensors"
    weights = np.random.default_rng(0).random((4, 8), np.float32)
    save(path, reorder.quantize(weights, "s4", axis=axis, groups=groups))
    other = memory_desc(dims, dtype, "plain").to_json()
    write_metadata(path, read_metadata(path) | {f"memdesc.tensor_{ending}": other})
    reason = r"_(scale|zero_point)'(, .* is not a row-major array| is stored as [fs]32 of shape)"
    with pytest.raises(MemdescError, match=reason):
        load_all(path, Quantized)


def test_a_dtype_names_elements_without_a_type(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.arange(4).astype(ml_dtypes.bfloat16))
    assert load(path, dtype="bf16").numpy().tolist() == [0, 1, 2, 3]
    with pytest.raises(
        MemdescError, match=r"of \|V2 cannot be read as f32: its elements have 16 bits"
    ):
        load(path, dtype="f32")
    with pytest.raises(MemdescError, match="elements of 2 bytes without a type; say which: dtype="):
        load(path)


@pytest.mark.parametrize(
    ("held", "dtype", "view"),
    [
        ("u1", "s8", "numpy.int8"),
        ("u2", "f16", "numpy.float16"),
        ("u2", "bf16", "ml_dtypes.bfloat16"),
        ("u2", "f32", "numpy.float32"),
        ("i2", "u16", "numpy.uint16"),
        ("u1", "u4", "ml_dtypes.uint4"),
        ("?", "u8", "numpy.uint8"),
    ],
)
def test_what_a_file_says_of_its_elements_is_neither_converted_nor_reinterpreted(
    tmp_path: Path, held: str, dtype: str, view: str
) -> None:
    x = np.array([0, 1, 200], np.uint8).astype(held)
    np.save(tmp_path / "x.npy", x)
    with pytest.raises(
        MemdescError,
        match=f"not {dtype}; a file says its own type: `memdesc reorder --to-dtype {dtype}`",
    ):
        load(tmp_path / "x.npy", dtype=dtype)
    with pytest.raises(MemdescError, match=rf"save x\.view\({view}\)"):
        load(tmp_path / "x.npy", dtype=dtype)
    assert load(tmp_path / "x.npy").numpy().dtype == x.dtype


@pytest.mark.parametrize("kind", [np.complex64, "S3", ">f4", "M8[s]"])
def test_an_array_of_a_type_that_tensors_do_not_have_is_refused(tmp_path: Path, kind: str) -> None:
    np.save(tmp_path / "x.npy", np.zeros(3, kind))
    np.savez(tmp_path / "x.npz", x=np.zeros(3, kind))
    for name in ("x.npy", "x.npz"):
        with pytest.raises(MemdescError, match=rf"{name}': tensor 'x' of "):
            load(tmp_path / name)


@pytest.mark.parametrize("name", _FORMATS)
def test_a_view_whose_buffer_ends_with_its_last_element_is_saved_too(
    tmp_path: Path, name: str
) -> None:
    gap = memory_desc((3, 4), "f32", strides=(6, 1))
    part = memory_desc((1, 17, 5, 4), "f32", "nChw8c").submemory((1, 8, 5, 4), (0, 8, 0, 0))
    for desc in (gap, part):
        memory = Memory(desc, np.arange(desc.min_nbytes, dtype=np.uint8), zero_pad=False)
        save(tmp_path / name, memory)
        again = load(tmp_path / name)
        assert again.desc == desc
        assert again.numpy().tobytes() == memory.numpy().tobytes()


def test_a_file_of_holes_that_is_larger_than_the_memory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.zeros(3, np.uint8))
    whole = path.read_bytes()[:128].replace(b"(3,), }" + b" " * 14, (b"(%d,), }" % 2**43).ljust(21))
    path.write_bytes(whole)
    with path.open("r+b") as file:
        try:
            file.truncate(len(whole) + 2**43)
        except OSError:
            pytest.skip("the file system has no such files")
    with limited_memory(), pytest.raises(MemdescError, match="more memory than is available"):
        load(path)


@pytest.mark.parametrize("name", [*_FORMATS, "x.npy"])
def test_a_mapped_tensor_is_the_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    x = np.random.default_rng(0).random((2, 17, 5, 4), np.float32)
    save(path, reorder.reorder(x, "abcd" if name == "x.npy" else "aBcd8b"))
    mapped = load(path, mmap=True)
    assert np.array_equal(mapped.numpy(), x)
    assert not mapped.data.flags.writeable
    assert load(path).data.flags.writeable
    assert [each.numpy().tobytes() for each in load_all(path, mmap=True).values()] == [x.tobytes()]
    save(path, reorder.reorder(np.ones((2, 0), np.float32), "ab"))
    assert load(path, mmap=True).numpy().shape == (2, 0)
