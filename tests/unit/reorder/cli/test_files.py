"""Files that commands read and write: names, kinds, and outputs that would replace inputs."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import struct
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import pytest

from reorder import load, load_all, reorder, save
from tests.headers import initializer, message_field

if TYPE_CHECKING:
    from tests.unit.reorder.cli.shell import Shell

X = np.random.default_rng(0).random((2, 17, 5, 4), np.float32)
RAW = "--from abcd --dims 2x17x5x4 --dtype f32"
PIXELS = "--from in_out_channel --dims 2x17x5x4 --dtype f32"


@pytest.fixture
def folder(shell: Shell) -> dict[str, bytes]:
    """Save a tensor in each kind of file that commands read; return all of them."""
    del shell  # it enters the folder
    np.save("x.npy", X)
    save("b.npz", reorder(X, "nChw8c"))
    save("z.npz", {"a.weight": reorder(X, "nChw8c"), "b": reorder(X, "nhwc", dtype="bf16"), "c": X})
    X.tofile("raw.bin")
    for name in ("link", "link.npy"):
        Path(name).symlink_to("raw.bin")
    return _content()


def _content() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path().iterdir() if path.is_file()}


# Tensors by name.


def test_a_tensor_of_an_archive_is_read_by_its_name(shell: Shell, folder: dict[str, bytes]) -> None:
    assert "z.npz" in folder
    shell.facts("reorder z.npz:b o.safetensors --to nchw --dtype bf16")
    assert np.array_equal(load("o.safetensors").numpy(), X.astype(ml_dtypes.bfloat16))
    packed = shell.facts("reorder z.npz:a.weight o.safetensors --to in_out_channel")
    assert packed["dims"] == list(X.shape)
    np.savez("one.npz", x=X)
    shell.facts("reorder one.npz o.npy --to nchw")  # the only one needs no name
    assert np.array_equal(np.load("o.npy"), X)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("z.npz o.npz", "has 3 tensors: a.weight, b, c; "),
        ("z.npz o.npz", "commands take one as FILE:NAME"),
        ("z.npz:d o.npz", "has no tensor 'd'; it has 3: a.weight, b, c"),
        ("z.npz:b o.npz --dtype f32", "says bf16, not f32"),
        ("z.npz:b o.npz --from nchw", "leave --from out"),
        ("many.npz o.npz", "t7 and 2 more"),
        ("none.npz o.npz", "has no tensors"),
        ("short.npy o.npz", "is not a .npy file"),
        ("empty.npy o.npz", "is not a .npy file"),
        ("two.npy o.npz", f"{128 + X.nbytes} bytes follow its data"),
        ("missing.npy o.npz", "cannot be read: No such file"),
        ("x.npy none/o.npz", "cannot be written"),
        ("x.npy /dev/full/o.npz", "cannot be written"),
        ("x.npy .", "cannot be saved"),
    ],
)
def test_what_is_not_one_tensor_is_refused_and_leaves_nothing(
    shell: Shell, folder: dict[str, bytes], command: str, reason: str
) -> None:
    np.savez("many.npz", **{f"t{k}": X[0, 0] for k in range(10)})
    np.savez("none.npz")
    Path("short.npy").write_bytes(folder["x.npy"][:-4])
    Path("empty.npy").touch()
    Path("two.npy").write_bytes(folder["x.npy"] * 2)
    before = _content()
    assert reason in shell.refusal(f"reorder {command}")
    assert _content() == before


@pytest.mark.parametrize(
    "command",
    [
        "compare two.npy x.npy",
        "inspect two.npy",
        "convert two.npy o.npz",
        "identify two.npy --dims 9",
    ],
)
def test_bytes_after_the_data_of_a_npy_are_refused(
    shell: Shell, folder: dict[str, bytes], command: str
) -> None:
    Path("two.npy").write_bytes(folder["x.npy"] * 2)
    assert f"{128 + X.nbytes} bytes follow its data" in shell.refusal(command)


# Outputs.


_REPLACED = ("would replace", "name another file")
_RAW_AS_NPY = ("would hold raw bytes", "call it a .bin")
_NO_ENDING = ("ends neither in .safetensors nor in .npz",)
_NO_PLACE = ("has no place for", "Write a .safetensors or a .npz", "--raw")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (f"raw.bin raw.bin --raw {RAW}", _REPLACED),
        (f"raw.bin link --raw {RAW}", _REPLACED),
        (f"raw.bin link.npy {RAW}", _REPLACED),
        (f"raw.bin link --raw {PIXELS}", _REPLACED),
        ("b.npz b.npz --to nhwc", _REPLACED),
        ("b.npz x.npy --to nchw --src-scale x.npy:15", (*_REPLACED, "which --src-scale reads")),
        ("x.npy b.npz --zero-point ./b.npz:15", (*_REPLACED, "which --zero-point reads")),
        ("x.npy x.npy --to nhwc --raw", _RAW_AS_NPY),
        ("z.npz:c z.npz --to nhwc", _REPLACED),
        ("z.npz:c z.npz --to in_out_channel", _REPLACED),
        *(
            (f"{source} {name} {to}", _NO_ENDING)
            for name in ("o", "o.bin", "o.gguf", "raw", "o.npy.json")
            for source, to in (
                ("raw.bin", RAW),
                ("x.npy", "--to nhwc"),
                ("x.npy", "--to in_out_channel"),
            )
        ),
        ("x.npy o.npy --to nhwc --to-dtype bf16", _NO_PLACE),
        ("x.npy o.npy --to ABcd4a2b --to-dtype u4", _NO_PLACE),
        ("x.npy o.npy --to plain --to-dtype bf16", _NO_PLACE),
        ("x.npy o.npy --to in_out_channel --to-dtype bf16", _NO_PLACE),
        ("raw.bin o.npy --from=abcd --dims=2x17x5x8 --dtype=bf16", _NO_PLACE),
    ],
)
def test_a_refused_output_changes_no_file(
    shell: Shell, folder: dict[str, bytes], command: str, words: tuple[str, ...]
) -> None:
    said = shell.refusal(f"reorder {command}")
    assert all(each in said for each in words)
    assert _content() == folder


def test_a_npy_is_replaced_by_what_is_made_of_it(shell: Shell, folder: dict[str, bytes]) -> None:
    assert "x.npy" in folder
    shell.facts("reorder x.npy x.npy --to plain --to-dtype s8 --from dcba")
    assert load("x.npy").desc.dims == X.shape[::-1]


@pytest.mark.parametrize("limit", ["1GiB", "4KiB"])
def test_raw_bytes_are_those_that_a_kernel_takes(
    shell: Shell, folder: dict[str, bytes], limit: str
) -> None:
    assert "x.npy" in folder
    shell.facts(f"reorder x.npy o.bin --to nChw16c --raw --max-bytes {limit}")
    assert Path("o.bin").read_bytes() == reorder(X, "nChw16c").data.tobytes()
    shell.facts("reorder o.bin o.npy --from=nChw16c --dims=2x17x5x4 --dtype=f32")
    assert np.array_equal(np.load("o.npy"), X)


# Odd arguments.


@pytest.mark.parametrize(
    "text", ["", "-0", "0", "1e999", "nan", "inf", "-1", "9" * 30, "1\u212a", "1.5", "x", "1 2"]
)
def test_what_is_not_a_number_of_bytes_is_refused(shell: Shell, text: str) -> None:
    np.save("x.npy", X)
    said = shell.refusal(["reorder", "x.npy", "o.npy", f"--max-bytes={text}"])
    assert said.startswith(f"--max-bytes {text!r} is not a size above 0")


@pytest.mark.parametrize(
    "command",
    [
        "show nchw " + "9" * 5000,
        "show nchw " + "1," * 5000 + "1",
        "show nchw 1x2x3x4 --" + "a" * 100_000,
        "show " + "a" * 100_000 + " 1x2",
        "c" * 100_000,
        "convert z.npz o.npz --rules=a\0b",
        "convert z.npz fifo --overwrite",
        "convert " + "n" * 300 + " o.npz",
        "inspect " + "n" * 300,
        "check " + "n" * 300 + ".npz:a",
        "identify x.npy --like=--",
        "reorder x.npy o.npy --to=--",
        "reorder " + "raw" * 30_000 + f" o.npy {RAW}",
    ],
    ids=lambda command: command[:40].replace("\0", "0"),
)
def test_odd_arguments_are_refused_in_a_short_line_and_leave_nothing(
    shell: Shell, folder: dict[str, bytes], command: str
) -> None:
    os.mkfifo("fifo")
    assert len(shell.refusal(command)) < 5000
    assert _content() == folder
    assert Path("fifo").is_fifo()


# Kinds of files.

_LOADED = "torch.load(path, weights_only=True)"
# what each kind is called, and the way out
KINDS = {
    "torch": ("a file of torch.save", _LOADED),
    "legacy": ("a pickle, perhaps of torch.save", _LOADED),
    "pickle": ("a pickle, perhaps of torch.save", _LOADED),
    "gzip": ("compressed by gzip", "decompress it first"),
    "hdf5": ("an HDF5 file", "h5py reads it"),
}


def _made(kind: str) -> str:
    """Write a file of a kind under a name that does not say it."""
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
    return str(path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_another_kind_is_not_raw_bytes_whatever_it_is_called(
    shell: Shell, kind: str
) -> None:
    path, (what, way_out) = _made(kind), KINDS[kind]
    before = _content()
    for command in (
        f"reorder {path} o.npy {RAW}",
        f"reorder {path} o.npy {RAW} --ignore-rest",
        f"reorder {path} o.npy {PIXELS}",
        f"reorder {path} o.npy --to plain",
        f"compare {path} {path} --from-a f32:bfyx:2x17x5x4",
        f"identify {path} --dims 2x17x5x4",
        f"check {path}",
    ):
        said = shell.refusal(command)
        assert f"is {what}: " in said
        assert way_out in said
        assert "--ignore-rest" not in said
    assert _content() == before


@pytest.mark.parametrize("kind", ["npy", "npz", "safetensors"])
def test_arrays_are_read_as_such_whatever_they_are_called(shell: Shell, kind: str) -> None:
    path, layout = _made(kind), "f32:bfyx:2x17x5x4"
    shell.facts(f"reorder {path} o.npy --to plain")
    assert np.array_equal(np.load("o.npy"), X)
    shell.facts(f"compare {path} {path} --from-a {layout} --from-b {layout}")
    assert shell.facts(f"identify {path} --dims 2x17x5x4", 1)["bytes"] == X.nbytes


def test_an_offset_says_where_bytes_are_in_a_file_of_any_kind(shell: Shell) -> None:
    shell.facts(f"reorder {_made('npy')} o.npy {RAW} --offset 128")
    assert np.array_equal(np.load("o.npy"), X)
    Path("raw.bin").write_bytes(b"GGUF" + X.tobytes()[4:])
    shell.facts(f"reorder raw.bin o.npy {RAW} --offset 0")
    assert np.load("o.npy").tobytes()[4:] == X.tobytes()[4:]
    Path("raw.bin").write_bytes(bytes(16) + X.tobytes())
    assert "pass --offset 16 if" in shell.refusal(f"reorder raw.bin o.npy {RAW}")


def test_damaged_files_are_not_called_raw_bytes(shell: Shell) -> None:
    Path("dump.npy").write_bytes(bytes(100))
    with Path("cut").open("wb") as file:
        np.save(file, np.zeros(9))
        file.truncate(150)
    for path in ("dump.npy", "cut", "none"):
        assert "does not say which" not in shell.refusal(f"reorder {path} o.npy --to ab")


@pytest.mark.parametrize(
    ("held", "dtype", "dims", "is_words"),
    [
        *(("f4", "f32", "680", True), ("i4", "u4", "5440", True), ("u1", "f32", "680", True)),
        *(("u1", "u4", "5440", True), ("V2", "bf16", "1360", True)),
        *(("f4", "f16", "680", False), ("f4", "u4", "680", False), ("i4", "f32", "680", False)),
        *(("u2", "bf16", "680", False), ("u2", "f16", "680", False)),
    ],
)
def test_words_are_read_as_other_types_only_where_they_are_words(
    shell: Shell, held: str, dtype: str, dims: str, is_words: bool
) -> None:
    np.save("x.npy", X.view(held))
    layout = f"{dtype}:bfyx:{dims}"
    for command in (
        f"identify x.npy --dims {dims} --dtype {dtype}",
        f"compare x.npy x.npy --from-a {layout} --from-b {layout}",
    ):
        if is_words:
            shell.facts(command)
        else:
            said = shell.refusal(command)
            assert f"not {dtype}; a file says its own type: name that one" in said


@pytest.mark.parametrize(
    "command",
    [
        f"reorder IN o.npy {RAW}",
        f"reorder IN o.npy {PIXELS}",
        "reorder IN o.npy --to in_out_channel",
        "reorder IN o.npy --to ab",
        "compare IN IN",
        "compare IN IN --from-a f32:bfyx:2x17x5x4",
        "identify IN --dims 2x17x5x4",
        "identify IN --like IN",
        "inspect IN",
        "check IN",
        "convert IN o.npz",
        "convert folder o.npy --rules IN",
        "log IN",
    ],
)
@pytest.mark.parametrize("special", ["fifo", "/dev/zero", "folder"])
def test_no_command_waits_for_a_pipe_or_reads_a_device(
    shell: Shell, special: str, command: str
) -> None:
    Path("folder").mkdir()
    os.mkfifo("fifo")
    shell.refusal(command.replace("IN", special))
    assert {path.name for path in Path().iterdir()} == {"folder", "fifo"}


@pytest.mark.parametrize(
    "text", ["shape: [b:2, f:3] (count: 6)\n1\n2\n", "1.5\n-2\n3\n", "1 2\n3 4\n"]
)
def test_text_is_refused_with_what_reads_it(shell: Shell, text: str) -> None:
    Path("dump.txt").write_text(text)
    said = shell.refusal("reorder dump.txt o.npy --from ab --dims 2x3 --dtype u8")
    assert said.startswith("'dump.txt' is text: numpy.loadtxt(path, skiprows=N) reads the numbers")


# Odd names.


def test_a_name_is_printed_on_its_line(shell: Shell) -> None:
    source, target = "a\nb\x1b[2J.npy", "c\nd.npz"
    np.save(source, X)
    assert shell.lines(["reorder", source, target])[0] == r"wrote   c\nd.npz"
    assert shell.lines(["check", target])[0].endswith(r"  c\nd.npz")
    assert shell.lines(["inspect", source])[1].startswith(r"a\nb\x1b[2J  2x17x5x4  f32")
    (first, *_) = shell.lines(["identify", source, "--like", source])
    assert first.startswith(r"a\nb\x1b[2J.npy, 2720 bytes: one layout")
    assert r"none\n.npy" in shell.refusal(["compare", source, "none\n.npy"])


def test_a_name_that_is_not_text_names_no_tensor_with_it(shell: Shell) -> None:
    name = os.fsdecode(b"\xfc.npy")
    np.save(name, X)
    assert shell.facts(["compare", name, name])["differing"] == 0
    (tensor,) = shell.facts(["inspect", name])["tensors"]
    assert tensor["name"] == r"\udcfc"


def test_commands_read_tensors_of_gguf_onnx_and_folders_by_name(shell: Shell) -> None:
    x = X.reshape(2 * 17, 20)
    save("x.npz", {"w": x, "v": x + 1})
    shell.facts("convert x.npz x.gguf")
    shell.facts("convert x.npz model")
    raw = message_field(9, x.tobytes())
    Path("m.onnx").write_bytes(message_field(7, initializer("w", 1, x.shape, raw)))
    for source in ("x.gguf:w", "m.onnx:w", "m.onnx", "model:w"):
        assert shell.facts(f"compare {source} x.npz:w")["differing"] == 0
        shell.facts(f"reorder {source} y.npy --to ba")
        assert np.array_equal(np.load("y.npy"), x.T)
        Path("y.npy").unlink()
    assert shell.facts("compare model:v x.npz:w", 1)["differing"] == x.size
    assert "has no tensor 'u'; it has 2: " in shell.refusal("compare model:u x.npz:w")
    shell.facts("reorder x.npz:w y.npz --to ba")
    assert shell.facts("compare x.gguf:w y.npz")["differing"] == 0


@pytest.mark.parametrize("limit", ["1GiB", "4000"])
def test_a_reordered_tensor_keeps_its_name(shell: Shell, limit: str) -> None:
    x = X.reshape(2 * 17, 20)
    save("x.npz", {"w": x, "v": x + 1})
    np.save("plain.npy", x)
    for folder, layout in (("a", "AB8b8a"), ("b", "ba")):
        Path(folder).mkdir()
        for name in "wv":
            command = f"reorder x.npz:{name} {folder}/{name}.safetensors --to {layout}"
            shell.facts(f"{command} --max-bytes {limit}")
        shell.facts(f"reorder plain.npy {folder}/u.safetensors --to {layout} --max-bytes {limit}")
    found = shell.facts("compare a b")
    assert (found["compared"], found["differing"]) == (3, [])
    assert [*load_all("a/u.safetensors")] == ["plain"]
