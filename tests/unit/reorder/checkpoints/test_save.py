"""Tensors saved and read back, what a file cannot hold, and files that are refused."""

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
from reorder.checkpoints.formats.entry import Tensor
from reorder.checkpoints.formats.table import plan_file
from reorder.records import Record
from tests import refused
from tests.files import read_metadata, write_metadata
from tests.work import limited_memory

_FORMATS = ["x.safetensors", "x.npz"]


def _blocked() -> Memory:
    return reorder.reorder(np.ones((1, 3, 2, 2), np.float32), "nChw8c")


# What is written


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


_SECTIONS = refused.sections(Path(__file__).with_name("refused.txt"))
_Q4_0 = record_desc((32,), "q4_0")
_NAMES: dict[str, Any] = {
    "AWQ": record_desc((128, 8), "awq"),
    "BLOCKED": _blocked(),
    "BLOCKS": Tensor("a", "q4_0", (32,), 18),
    "Memory": Memory,
    "NESTED": Nested(),
    "PAIR": Tensor("a", "f32", (2,), 8),
    "Q4_0": _Q4_0,
    "QUANTIZED": reorder.quantize(np.ones((2, 3), np.float32), "s8"),
    "REPEATED": Memory(memory_desc((4, 3), "f32", strides=(0, 1))),
    "Record": Record,
    "Tensor": Tensor,
    "VOID": np.arange(4).astype(ml_dtypes.bfloat16),
    "desc": memory_desc,
    "np": np,
    "r": reorder,
    "replace": replace,
}


@pytest.mark.parametrize("section", _SECTIONS)
def test_a_call_is_refused_with_what_was_given_and_the_rule(tmp_path: Path, section: str) -> None:
    """*Law*: what is refused leaves no file."""

    def saved(name: str, value: Any) -> None:
        try:
            save(tmp_path / name, value)
        finally:
            assert not [*tmp_path.iterdir()]

    def planned(ending: str, *tensors: Tensor, **metadata: Any) -> None:
        plan_file(Path(f"x.{ending}"), tensors, metadata)

    def loaded(value: Any, *kind: Any) -> None:
        save(tmp_path / "x.npz", value)
        load(tmp_path / "x.npz", *kind)

    def reading(**options: Any) -> None:
        np.savez_compressed(tmp_path / "x.npz", x=np.zeros(1000))
        load_all(tmp_path / "x.npz", **options)

    def array(x: Any, dtype: str | None = None) -> None:
        np.save(tmp_path / "x.npy", x)
        np.savez(tmp_path / "x.npz", x=x)
        errors = []
        for name in ("x.npy", "x.npz"):
            with pytest.raises(MemdescError, match=rf"{name}': ") as caught:
                load(tmp_path / name, dtype=dtype)
            errors.append(caught.value)
        raise errors[0]

    def raw(name: str, value: Any) -> None:
        try:
            save_raw(tmp_path / name, value)
        finally:
            assert not [*tmp_path.iterdir()]

    calls: list[Any] = [saved, planned, loaded, reading, array, raw]
    refused.check(_SECTIONS[section], _NAMES | {call.__name__: call for call in calls})


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
    for key in ("one", "axis"):  # scales of a type that numpy lacks
        scales = given[key].scales.astype(ml_dtypes.bfloat16)
        given[f"bf16 {key}"] = given[key]._replace(scales=scales)
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
    # GGUF has no tensors without dims
    save(tmp_path / name, given["one"])
    reorder.convert(tmp_path / name, tmp_path / "x.gguf")
    again = load(tmp_path / "x.gguf", Quantized)
    assert (again.scales.shape, again.scales) == ((), given["one"].scales)


def test_a_record_whose_options_are_left_out_by_hand_has_the_usual_ones(tmp_path: Path) -> None:
    path, desc = tmp_path / "x.safetensors", record_desc((256, 256), "gptq")
    reorder.save(path, Record(replace(desc, options=())))
    assert reorder.load(path, Record).desc == desc


def test_two_tensors_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save(path, {"w": reorder.quantize(np.ones((4, 8), np.float32), "s8"), "b": np.ones(3)})
    metadata = read_metadata(path)
    metadata["memdesc.w"] = metadata["memdesc.w"].replace('"name": "w"', '"name": "b"')
    write_metadata(path, metadata)
    with pytest.raises(MemdescError, match="two tensors are called 'b'"):
        load_all(path)


@pytest.mark.parametrize("name", _FORMATS)
def test_swizzles_and_views_that_end_with_their_last_element_are_read_back(
    tmp_path: Path, name: str
) -> None:
    part = memory_desc((1, 17, 5, 4), "f32", "nChw8c").submemory((1, 8, 5, 4), (0, 8, 0, 0))
    swizzled = [
        memory_desc((7, 40), dtype, "Sw<2,3,3> o 0 o (8,64):(64,1)")
        for dtype in ("f16", "u8", "bf16", "s4")
    ]
    for desc in (memory_desc((3, 4), "f32", strides=(6, 1)), part, *swizzled):
        content = np.random.default_rng(5).integers(0, 256, desc.min_nbytes, np.uint8)
        memory = Memory(desc, content, zero_pad=desc in swizzled)
        save(tmp_path / name, memory)
        again = load(tmp_path / name)
        assert again.desc == desc
        assert again.numpy().tobytes() == memory.numpy().tobytes()
        save_raw(tmp_path / "x.bin", memory)
        assert (tmp_path / "x.bin").stat().st_size == desc.nbytes


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
