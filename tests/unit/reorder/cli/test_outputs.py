"""What no command takes: outputs that replace inputs, odd arguments, files of something else."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pytest

from memdesc import MemdescError, image_desc
from reorder import load, reorder, save
from reorder.bench.cases import parse_cases
from reorder.cli.command import bytes_of
from tests.unit.reorder.cli.results import facts, refusal

if TYPE_CHECKING:
    from pathlib import Path

    from pytest import CaptureFixture, MonkeyPatch  # noqa: PT013 - the types of fixtures

X = np.random.default_rng(0).random((2, 17, 5, 4), np.float32)
RAW = ("--from", "abcd", "--dims", "2x17x5x4", "--dtype", "f32")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: MonkeyPatch) -> Path:
    """A folder with tensors of each kind, which is the current one."""
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)
    save("b.npz", reorder(X, "nChw8c"))
    np.savez("z.npz", a=X, b=X)
    X.tofile("raw.bin")
    for name in ("link", "link.npy"):
        (tmp_path / name).symlink_to("raw.bin")
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        ("reorder", "raw.bin", "raw.bin", "--raw", *RAW),
        ("reorder", "raw.bin", "link", "--raw", *RAW),
        ("reorder", "raw.bin", "link.npy", *RAW),
        ("reorder", "b.npz", "b.npz", "--to", "nhwc"),
        ("reorder", "x.npy", "x.npy", "--to", "nhwc", "--raw"),
        ("reorder", "z.npz:a", "z.npz", "--to", "nhwc"),
        ("reorder", "z.npz:a", "z.npz", "--to", "in_out_channel"),
        (
            *("reorder", "raw.bin", "link", "--from", "in_out_channel", "--dims", "2x17x5x4"),
            *("--dtype", "f32", "--raw"),
        ),
    ],
    ids=" ".join,
)
def test_an_output_that_replaces_what_is_read_is_refused(
    folder: Path, capsys: CaptureFixture[str], command: tuple[str, ...]
) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    said = refusal(capsys, *command)
    assert "would replace" in said or "would hold raw bytes" in said
    assert "name another file" in said or "call it a .bin" in said
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_npy_is_replaced_by_what_is_made_of_it(folder: Path, capsys: CaptureFixture[str]) -> None:
    del folder
    facts(
        capsys, "reorder", "x.npy", "x.npy", "--to", "plain", "--to-dtype", "s8", "--from", "dcba"
    )
    assert load("x.npy").desc.dims == X.shape[::-1]


@pytest.mark.parametrize("name", ["o", "o.bin", "o.gguf", "raw", "o.npy.json"])
def test_an_output_whose_name_says_no_format_is_refused(
    folder: Path, capsys: CaptureFixture[str], name: str
) -> None:
    before = {path.name for path in folder.iterdir()}
    for command in (
        ("reorder", "raw.bin", name, *RAW),
        ("reorder", "x.npy", name, "--to", "nhwc"),
        ("reorder", "x.npy", name, "--to", "in_out_channel"),
        ("reorder", "x.npy", name, "--from", "in_out_channel", "--dims", "2x17x5x4"),
    ):
        assert "ends neither in .safetensors nor in .npz" in refusal(capsys, *command)
    assert {path.name for path in folder.iterdir()} == before


def test_what_numpy_has_no_arrays_of_is_refused_with_the_ways_out(
    folder: Path, capsys: CaptureFixture[str]
) -> None:
    before = {path.name for path in folder.iterdir()}
    for command in (
        ("reorder", "x.npy", "o.npy", "--to", "nChw16c"),
        ("reorder", "x.npy", "o.npy", "--to", "nhwc"),
        ("reorder", "x.npy", "o.npy", "--to", "nhwc", "--max-bytes", "4KiB"),
        ("reorder", "x.npy", "o.npy", "--to", "plain", "--to-dtype", "bf16"),
        ("reorder", "x.npy", "o.npy", "--to", "in_out_channel", "--to-dtype", "bf16"),
        ("reorder", "raw.bin", "o.npy", "--from=abcd", "--dims=2x17x5x8", "--dtype=bf16"),
    ):
        said = refusal(capsys, *command)
        assert "has no place for" in said
        assert "Write a .safetensors or a .npz" in said
        assert "--raw" in said
    assert {path.name for path in folder.iterdir()} == before


@pytest.mark.parametrize("limit", ["1GiB", "4KiB"])
def test_raw_bytes_are_those_that_a_kernel_takes(
    folder: Path, capsys: CaptureFixture[str], limit: str
) -> None:
    arguments = ("reorder", "x.npy", "o.bin", "--to", "nChw16c", "--raw", "--max-bytes", limit)
    assert facts(capsys, *arguments)["wrote"] == "o.bin"
    assert (folder / "o.bin").read_bytes() == reorder(X, "nChw16c").data.tobytes()
    facts(capsys, "reorder", "o.bin", "o.npy", "--from=nChw16c", "--dims=2x17x5x4", "--dtype=f32")
    assert np.array_equal(np.load("o.npy"), X)


@pytest.mark.parametrize(
    "text", ["", "-0", "0", "1e999", "nan", "inf", "-1", "9" * 30, "1\u212a", "1.5", "x", "1 2"]
)
def test_sizes_that_are_no_numbers_of_bytes_are_refused(text: str) -> None:
    with pytest.raises(MemdescError, match="--max-bytes"):
        bytes_of("--max-bytes", text)


@pytest.mark.parametrize("word", ["9" * 5000, "2x" + "9" * 5000, "²x3", "٣x3", "-1x2", "1e9"])
def test_cases_whose_dims_are_no_sizes_are_refused(word: str) -> None:
    with pytest.raises(MemdescError, match="neither an option nor dims"):
        list(parse_cases([word]))


@pytest.mark.parametrize(
    "command",
    [
        ("match", "--dims=2x3", "--strides=3x1", f"--inner={'9' * 5000}b"),
        ("reorder", "x.npy", "o.npz", "--to=in_out_channel", f"--max-size={'9' * 5000}x1"),
        ("reorder", "x.npy", "o.npz", "--to=in_out_channel", "--max-size=²x1"),
        ("show", "nchw", "9" * 5000),
        ("show", "nchw", "1," * 5000 + "1"),
        ("convert", "z.npz", "o.npz", "--rules=a\0b"),
        ("inspect", "n" * 300),
        ("check", "n" * 300 + ".npz:a"),
        ("convert", "n" * 300, "o.npz"),
        ("identify", "x.npy", "--like=--"),
        ("reorder", "x.npy", "o.npy", "--to=--"),
        ("convert", "z.npz", "fifo", "--overwrite"),
        ("c" * 100_000,),
        ("reorder", "raw" * 30_000, "o.npy", *RAW),
        ("show", "a" * 100_000, "1x2"),
        ("show", "nchw", "1x2x3x4", "--" + "a" * 100_000),
    ],
    ids=lambda command: " ".join(command)[:40].replace("\0", "0"),
)
def test_odd_arguments_are_refused_in_a_short_line_and_leave_nothing(
    folder: Path, capsys: CaptureFixture[str], command: tuple[str, ...]
) -> None:
    os.mkfifo("fifo")
    before = {path.name for path in folder.iterdir()}
    assert len(refusal(capsys, *command)) < 5000
    assert {path.name for path in folder.iterdir()} == before
    assert (folder / "fifo").is_fifo()


def test_bytes_behind_the_data_of_a_npy_are_refused(
    folder: Path, capsys: CaptureFixture[str]
) -> None:
    with (folder / "two.npy").open("wb") as file:
        np.save(file, X)
        np.save(file, X)
    for command in (
        ("reorder", "two.npy", "o.npy", "--to", "plain"),
        ("compare", "two.npy", "x.npy"),
        ("inspect", "two.npy"),
        ("convert", "two.npy", "o.npz"),
        ("identify", "two.npy", "--dims", "2x17x5x4"),
    ):
        assert f"{128 + X.nbytes} bytes follow its data" in refusal(capsys, *command)


def test_unpack_says_where_pixels_are_not_those_of_an_image_of_these_dims(
    folder: Path, capsys: CaptureFixture[str]
) -> None:
    np.save(folder / "c20.npy", np.random.default_rng(0).random((2, 20, 5, 4), np.float32))
    facts(capsys, "reorder", "c20.npy", "image.bin", "--to", "in_out_channel", "--raw")
    image = image_desc((2, 20, 5, 4), "f32", "in_out_channel")
    pixels = np.fromfile("image.bin", np.float32).reshape(image.height, image.width, 4)
    np.save("pixels.npy", pixels)
    pixels.tofile("pixels.bin")
    known = ("o.npy", "--from", "in_out_channel", "--dims")
    for raw in (("pixels.npy",), ("pixels.bin", "--dtype", "f32")):
        assert facts(capsys, "reorder", *raw, *known, "2x20x5x4")["padding_zero"] is True
        found = facts(capsys, "reorder", *raw, *known, "2x17x5x4", code=1)
        assert (found["padding_zero"], len(found["places"])) == (False, 10)
    assert "the other pixels are not zero" in refusal(
        capsys, "reorder", "pixels.npy", *known, "2x20x4x4"
    )
    assert "--row-pitch is for raw pixels" in refusal(
        capsys, "reorder", "pixels.npy", *known, "2x20x5x4", "--row-pitch", "320"
    )
