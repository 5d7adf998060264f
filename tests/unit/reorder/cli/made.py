"""Files that sessions of the command line start from."""

import gzip
import json
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reorder
from memdesc import UnsupportedFormatError, known_names, memory_desc
from memdesc.names import images, resolve
from memdesc.record import known_records, record_desc
from reorder.checkpoints.formats.entry import Tensor
from reorder.checkpoints.formats.safetensors import plan_shards
from reorder.checkpoints.writer import Writer, partial_folder  # noqa: F401 - sessions use it
from tests.checkpoints import fp8_layer, write_config, write_safetensors
from tests.hints import ROOT

DATA = ROOT / "tests/data"
RNG = np.random.default_rng(0)
X = RNG.random((2, 17, 5, 4), np.float32)
# a filter
W = RNG.random((6, 5, 3, 2), np.float32)
# larger than what some commands may hold
LARGE = np.random.default_rng(0).random((4, 40, 12, 10), np.float32)
DUMP = "conv_dst0__f16__1_17_5_4__b_fs_yx_fsv16.bin"
RAW = "--from abcd --dims 2x17x5x4 --dtype f32"
_LOADED = "torch.load(path, weights_only=True)"
# what each kind of file is called, and the way out
KINDS = {
    "torch": ("a file of torch.save", _LOADED),
    "legacy": ("a pickle, perhaps of torch.save", _LOADED),
    "pickle": ("a pickle, perhaps of torch.save", _LOADED),
    "gzip": ("compressed by gzip", "decompress it first"),
    "hdf5": ("an HDF5 file", "h5py reads it"),
}

# what help and tables say, a warning, and a note
NO_HINTS = (
    "so what could be saved is incomplete",
    "code that copies row by row",
    "as in 2x17x5x4, to see strides and bytes",
    "of the copy",
    "copy of pages",
    "these strides leave gaps",
    "so they share few sets of a cache",
    "; give ",
)
COMMANDS = [
    path.relative_to(ROOT).as_posix()
    for folder in ("bench", "cli")
    for path in sorted((ROOT / "reorder" / folder).glob("*.py"))
]


def same(path: str, x: np.ndarray) -> bool:
    """Whether a .npy has these numbers in this shape."""
    return np.array_equal(np.load(path), x)


def dump() -> None:
    """Save a dump of OpenVINO, same.npy with its values, and ref.npy with some others."""
    x = np.arange(340, dtype=np.float16).reshape(1, 17, 5, 4)
    reorder.reorder(x, "b_fs_yx_fsv16").data.tofile(DUMP)
    y = x.astype(np.float32)
    np.save("same.npy", y)
    y[0, 16, 2:4, 1:] += 0.5
    y[0, 3, 0, 0] = np.nan
    np.save("ref.npy", y)


def kind_of_file(kind: str) -> None:
    """Write a file of a kind, whose name does not say it."""
    path = Path("dump.bin")
    place = {"dtype": "F32", "shape": X.shape, "data_offsets": [0, X.nbytes]}
    header = json.dumps({"x": place}).encode()
    content = {
        "legacy": pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2),
        "pickle": pickle.dumps({"x": X}),
        "safetensors": struct.pack("<Q", len(header)) + header + X.tobytes(),
        "gzip": gzip.compress(X.tobytes()),
        "hdf5": b"\x89HDF\r\n\x1a\n" + bytes(100),
    }
    with path.open("wb") as file:
        if kind == "npy":
            np.save(file, X)
        elif kind == "npz":
            np.savez(file, x=X)
        elif kind == "torch":
            with zipfile.ZipFile(file, "w") as archive:
                archive.writestr("archive/data.pkl", pickle.dumps(1))
                archive.writestr("archive/data/0", X.tobytes())
        else:
            file.write(content[kind])


def folder(path: str, tensors: dict[str, Any], **section: Any) -> None:
    """Write a folder of a checkpoint whose config.json declares a quantisation."""
    Path(path).mkdir(exist_ok=True)
    write_safetensors(Path(path, "model.safetensors"), tensors)
    write_config(Path(path), **section)


def fp8_model(layers: int, block: int, without: str = "") -> None:
    """Save matrices of 256 x 80 in blocks of 128 x 128, which config.json may contradict."""
    codes = fp8_layer()["weight"][:, :80]
    scales = np.ones((2, 1), np.float32)
    layer = {"weight": np.ascontiguousarray(codes), "weight_scale_inv": scales}
    tensors = {f"layers.{k}.fc.{name}": x for k in range(layers) for name, x in layer.items()}
    tensors.pop(without, None)
    folder("m", tensors, quant_method="fp8", weight_block_size=[block, block])


def sharded_model() -> None:
    """Write a folder of two shards, with AWQ weights as config.json declares."""
    blocked = memory_desc((20, 3, 3, 3), "f32", "OIhw16o4i")
    marlin = memory_desc((64, 64), "u4", "marlin")
    tensors = [
        Tensor("conv", "u8", (blocked.nbytes,), blocked.nbytes, blocked),
        Tensor("norm", "bf16", (7,), 14),
        Tensor("scale", "f32", (), 4),
        Tensor("fc.qweight", "s32", (128, 2), 1024),
        Tensor("fc.qzeros", "s32", (1, 2), 8),
        Tensor("fc.scales", "f16", (1, 16), 32),
        Tensor("packed", "s32", (4, 128), marlin.nbytes, marlin),
        Tensor("q4", "u8", (36,), 36, record_desc((2, 32), "q4_0")),
        Tensor("odd", "F6_E2M3", (4,), 3),
        Tensor("view", "f32", (32,), 128, memory_desc((4, 4), "f32", strides=(8, 1))),
    ]
    with Writer(Path("m"), plan_shards(tensors, {}, 4700), is_folder=True) as writer:
        writer.finish()
    write_config(Path("m"), quant_method="awq", bits=4)


def packings() -> None:
    """Save the same numbers in two packings, as words and as what describes itself."""
    q = np.random.default_rng(0).integers(0, 16, (128, 64), np.uint8)
    np.save("plain.npy", q)
    for name, rows in (("gptq", 16), ("marlin", 8)):
        packed = reorder.reorder(q, name, dtype="u4")
        reorder.save(f"{name}.safetensors", packed)
        words = packed.data.view(np.int32).reshape(rows, -1)
        np.save(f"{name}.npy", words)
        np.savez(f"{name}.npz", up=words)


def every_name() -> set[str]:
    """Return what the list of names must contain."""
    return {*images.IMAGES, *(name.text for name in known_names()), *known_records()}


def is_right(row: dict[str, Any]) -> bool:
    """Whether a row of the list of names says what the name is resolved to."""
    text, tag = row["text"], row["tag"]
    if row["vocabulary"] == "record":
        return tag is None
    if text in images.IMAGES:
        return bool(tag == images.IMAGES[text].parts)
    if tag is None:
        with pytest.raises(UnsupportedFormatError):
            resolve(text, (), 32)
        return text in row["why"]
    found = resolve(text, (), row.get("bits", 32))
    return (tag, row["ndims"]) == (str(found), found.ndims)


def grow(path: str, head: bytes, nbytes: int) -> None:
    """Write a file of so many zeros, which take no room, after a head."""
    try:
        with Path(path).open("wb") as file:
            file.write(head)
            file.truncate(len(head) + nbytes)
    except OSError:
        pytest.skip("the file system has no files of this size")


def pieces_equal(options: str, facts: Callable[[str], object]) -> None:
    """Reorder in.npy in pieces and at once, into files of each kind."""
    for ending in (".safetensors", ".npz", ".bin --raw"):
        name = ending.partition(" ")[0]
        for out, limit in (("pieces", "16KiB"), ("once", "1GiB")):
            facts(f"reorder in.npy {out}{ending} {options} --max-bytes {limit}")
        assert Path(f"pieces{name}").read_bytes() == Path(f"once{name}").read_bytes()
    assert not [*Path().glob(".*")]


def made_for_hints() -> None:
    """Save what the commands read that follow hints."""
    x = np.arange(24, dtype=np.float32).reshape(1, 4, 3, 2)
    np.save("x.npy", x)
    for name in ("x.bin", "conv__f32__1_4_3_2__bfyx.bin"):
        x.tofile(name)
    np.savez("two.npz", a=np.ones((2, 3), np.float32), b=np.ones(2, np.float32))
    reorder.save("blocked.npz", reorder.reorder(x, "nChw4c"))
    Path("cases.txt").write_text("2x3\n", "utf-8")
    Path("torch.log").symlink_to(DATA / "verbose/torch-2.13.log")
