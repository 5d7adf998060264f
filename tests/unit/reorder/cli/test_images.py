"""Images on the command line: packed, unpacked, and shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import pytest

from memdesc import image_desc
from reorder import load, reorder, save
from reorder.cli import main
from tests.unit.reorder.cli.results import facts, refusal

if TYPE_CHECKING:
    from pathlib import Path

    from pytest import CaptureFixture  # noqa: PT013 - the type of a fixture

X = np.random.default_rng(0).random((6, 5, 3, 2), np.float32)


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A saved filter, and room beside it."""
    np.save(tmp_path / "weights.npy", X)
    return tmp_path


def test_pack_writes_the_pixels_of_an_image(capsys: CaptureFixture[str], weights: Path) -> None:
    out = weights / "image.safetensors"
    found = facts(
        capsys, "reorder", str(weights / "weights.npy"), str(out), "--to", "conv2d_filter"
    )
    image = image_desc(X.shape, "f32", "conv2d_filter")
    assert (
        (found["width"], found["height"], found["channels"])
        == (5, 12, 4)
        == (image.width, image.height, image.channels)
    )
    assert load(out).desc == image.desc
    assert load(out).data.tobytes() == reorder(X, image).tobytes()
    raw = weights / "image.bin"
    arguments = (
        "reorder",
        str(weights / "weights.npy"),
        str(raw),
        "--to",
        "conv2d_filter",
        "--raw",
    )
    assert facts(capsys, *arguments)["wrote"] == str(raw)
    assert raw.read_bytes() == reorder(X, image).tobytes()
    assert main(["check", str(out)]) == 0


def test_pack_converts_the_lanes(capsys: CaptureFixture[str], weights: Path) -> None:
    src, out = str(weights / "weights.npy"), weights / "image.safetensors"
    found = facts(capsys, "reorder", src, str(out), "--to", "conv2d_filter", "--to-dtype", "f16")
    image = image_desc(X.shape, "f16", "conv2d_filter")
    assert found["dtype"] == "f16"
    assert load(out).data.tobytes() == reorder(X, image).tobytes()


def test_pack_reads_axes_in_memory_order_and_files_with_a_descriptor(
    capsys: CaptureFixture[str], weights: Path
) -> None:
    wanted = reorder(X, image_desc(X.shape, "f32", "in_out_channel")).tobytes()
    np.save(weights / "nhwc.npy", np.ascontiguousarray(X.transpose(0, 2, 3, 1)))
    out = str(weights / "image.safetensors")
    facts(
        capsys,
        "reorder",
        str(weights / "nhwc.npy"),
        out,
        "--to",
        "in_out_channel",
        "--from",
        "nhwc",
    )
    assert load(out).data.tobytes() == wanted
    blocked = str(weights / "blocked.safetensors")
    facts(capsys, "reorder", str(weights / "weights.npy"), blocked, "--to", "nChw16c")
    facts(capsys, "reorder", blocked, out, "--to", "in_out_channel")
    assert load(out).data.tobytes() == wanted


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_packed_file_knows_that_it_is_an_image_and_leads_back(
    capsys: CaptureFixture[str], weights: Path, dtype: str
) -> None:
    x = X.astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))
    save(weights / "x.npz", reorder(x, "abcd"))
    packed, back = str(weights / "image.safetensors"), str(weights / "back.npz")
    facts(capsys, "reorder", str(weights / "x.npz"), packed, "--to", "conv2d_filter")
    image = image_desc(X.shape, x.dtype, "conv2d_filter")
    assert load(packed).desc == image.desc
    facts(capsys, "reorder", packed, back, "--to", "abcd")
    assert load(back).numpy().tobytes() == x.tobytes()
    (checked,) = facts(capsys, "check", packed)["tensors"]
    assert checked["padding_elements"] == image.desc.padded_nelems - X.size


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--to", "conv2d_filter", "--max-size", "16x4"),
            "height 12 is more than the 4 pixels allowed",
        ),
        (
            ("--to", "conv2d_filter", "--max-size", "big"),
            "--max-size 'big' is not a width and height, such as 16384x16384",
        ),
        (("--to", "winograd_filter"), "which a reorder cannot make"),
        (("--to", "dw_conv2d_filter"), "multiplier m = 6"),
    ],
)
def test_pack_refuses_what_makes_no_image(
    capsys: CaptureFixture[str], weights: Path, arguments: tuple[str, ...], message: str
) -> None:
    out = weights / "image.safetensors"
    assert main(["reorder", str(weights / "weights.npy"), str(out), *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize("option", ["--dtag", "--stag"])
def test_bench_says_which_command_is_for_images(capsys: CaptureFixture[str], option: str) -> None:
    assert (
        "`memdesc reorder IN.npy OUT.safetensors --to in_out_channel` makes its pixels"
        in refusal(capsys, "bench", "6x5x3x2", option, "in_out_channel")
    )


def test_an_image_in_a_npy_is_an_array_of_pixels(
    capsys: CaptureFixture[str], weights: Path
) -> None:
    image, back = str(weights / "image.npy"), str(weights / "back.npy")
    facts(capsys, "reorder", str(weights / "weights.npy"), image, "--to", "conv2d_filter")
    pixels = reorder(X, image_desc(X.shape, "f32", "conv2d_filter"))
    assert np.array_equal(np.load(image), pixels)
    assert pixels.shape == (12, 5, 4)
    told = ("--from", "conv2d_filter", "--dims", "6x5x3x2")
    assert facts(capsys, "reorder", image, back, *told)["padding_zero"] is True
    assert np.array_equal(np.load(back), X)
    assert "has no place for" in refusal(
        capsys, "reorder", image, back, *told, "--to", "conv2d_filter", "--to-dtype", "bf16"
    )
    assert "does not contain the sizes; give dims" in refusal(
        capsys, "reorder", image, back, "--from", "conv2d_filter"
    )


def test_from_is_refused_where_the_file_says_how_it_lies(
    capsys: CaptureFixture[str], weights: Path
) -> None:
    blocked, out = str(weights / "blocked.safetensors"), str(weights / "image.safetensors")
    facts(capsys, "reorder", str(weights / "weights.npy"), blocked, "--to", "nChw16c")
    assert main(["reorder", blocked, out, "--to", "conv2d_filter", "--from", "nhwc"]) == 2
    assert (
        f"the descriptor of '{blocked}' says memory_desc((6, 5, 3, 2), 'f32', 'aBcd16b'), "
        "not 'nhwc'; leave --from out" in capsys.readouterr().err
    )
    facts(capsys, "reorder", blocked, out, "--to", "conv2d_filter", "--from", "nChw16c")


def test_show_says_what_the_first_pixels_of_an_image_hold(capsys: CaptureFixture[str]) -> None:
    found = facts(capsys, "show", "in_out_channel", "1x64x56x56")
    assert (found["width"], found["height"]) == (896, 56)
    assert found["first_pixels"][1] == {
        "pixel": [1, 0],
        "holds": [[0, 0, 0, 1], [0, 1, 0, 1], [0, 2, 0, 1], [0, 3, 0, 1]],
    }
    tail = facts(capsys, "show", "argument", "6")["first_pixels"]
    assert [pixel["holds"] for pixel in tail] == [[[0], [1], [2], [3]], [[4], [5], None, None]]
    assert main(["show", "argument", "6"]) == 0
    assert "pixel (1, 0), holds (4,) (5,) padding padding\n" in capsys.readouterr().out


def test_pack_converts_what_a_file_says_and_reads_what_it_cannot_say(
    capsys: CaptureFixture[str], weights: Path
) -> None:
    out = weights / "image.safetensors"

    def packed(src: str, *words: str) -> bytes:
        facts(capsys, "reorder", str(weights / src), str(out), "--to", "conv2d_filter", *words)
        return load(out).data.tobytes()

    half, wide, bits = (image_desc(X.shape, d, "conv2d_filter") for d in ("f16", "f32", "bf16"))
    save(weights / "blocked.safetensors", reorder(X, "aBcd8b"))
    assert packed("weights.npy", "--to-dtype", "f16") == reorder(X, half).tobytes()
    assert packed("blocked.safetensors", "--to-dtype", "f16") == reorder(X, half).tobytes()
    bf16 = X.astype(ml_dtypes.bfloat16)
    np.save(weights / "bf16.npy", bf16)
    assert packed("bf16.npy", "--dtype", "bf16") == reorder(bf16, bits).tobytes()
    words = ("--dtype", "bf16", "--to-dtype", "f32")
    assert packed("bf16.npy", *words) == reorder(bf16.astype(np.float32), wide).tobytes()
    u8 = np.arange(180, dtype=np.uint8).reshape(X.shape)
    np.save(weights / "u8.npy", u8)
    assert packed("u8.npy", "--to-dtype", "f32") == reorder(u8.astype(np.float32), wide).tobytes()
    for src, dtype in (
        ("weights.npy", "f16"),
        ("blocked.safetensors", "f16"),
        ("u8.npy", "s8"),
        ("u8.npy", "f32"),
    ):
        arguments = ("reorder", str(weights / src), str(out), "--to", "conv2d_filter")
        assert f"--to-dtype {dtype}" in refusal(capsys, *arguments, "--dtype", dtype)


def test_unpack_reads_packed_files_arrays_of_pixels_and_raw_dumps(
    capsys: CaptureFixture[str], weights: Path
) -> None:
    packed, out = str(weights / "image.safetensors"), str(weights / "out.npy")
    facts(capsys, "reorder", str(weights / "weights.npy"), packed, "--to", "conv2d_filter")
    assert facts(capsys, "reorder", packed, out)["dims"] == list(X.shape)
    assert np.load(out).tobytes() == X.tobytes()
    pixels = load(packed).data.view(np.float32).reshape(12, 5, 4)
    np.save(weights / "pixels.npy", np.pad(pixels, ((0, 3), (0, 1), (0, 0))))  # a larger image
    pixels.tofile(weights / "pixels.bin")
    known = ("--from", "conv2d_filter", "--dims", "6x5x3x2")
    facts(capsys, "reorder", str(weights / "pixels.npy"), out, *known)
    assert np.load(out).tobytes() == X.tobytes()
    dump = str(weights / "pixels.bin")
    blocked = str(weights / "blocked.npz")
    facts(capsys, "reorder", dump, blocked, *known, "--dtype", "f32", "--to", "aBcd8b")
    restored = load(blocked)
    assert restored.desc.tags()[0].text == "aBcd8b"
    assert restored.numpy().tobytes() == X.tobytes()
    facts(capsys, "reorder", dump, out, *known, "--dtype", "f32", "--to-dtype", "f16")
    assert np.load(out).tobytes() == X.astype(np.float16).tobytes()
    mapped = str(weights / "mapped.bin")
    rows = np.zeros((12, 128), np.uint8)
    rows[:, :80] = pixels.reshape(12, -1).view(np.uint8)
    for end in (None, -48):  # with the gap behind the last row, or without
        rows.reshape(-1)[:end].tofile(mapped)
        facts(capsys, "reorder", mapped, out, *known, "--dtype", "f32", "--row-pitch", "128")
        assert np.load(out).tobytes() == X.tobytes()
    for arguments, message in (
        ((dump, *known, "--dtype", "f32", "--row-pitch", "79"), "is less than a row of image_desc"),
        ((dump, *known, "--dtype", "f32", "--row-pitch", "96"), "rows of 80 bytes, 96 bytes apart"),
        ((packed, "--dims", "6x5x2x3"), "has dims (6, 5, 3, 2), not (6, 5, 2, 3)"),
        ((dump, *known), "give dtype"),
        (
            (dump, *known, "--dtype", "f16"),
            "but image_desc((6, 5, 3, 2), 'f16', 'conv2d_filter') takes 480; pass",
        ),
        ((str(weights / "none.npy"), *known), "cannot be read"),
        ((str(weights / "weights.npy"), *known), "has shape (6, 5, 3, 2), but image_desc"),
    ):
        assert main(["reorder", arguments[0], str(weights / "refused.npy"), *arguments[1:]]) == 2
        assert message in capsys.readouterr().err
    assert not (weights / "refused.npy").exists()


def test_reorder_reads_the_dump_of_an_image_and_checks_its_unused_lanes(
    capsys: CaptureFixture[str], weights: Path
) -> None:
    image = image_desc(X.shape, "f16", "conv2d_filter")
    pixels = reorder(X, image)
    dump, out = str(weights / "dump.bin"), str(weights / "out.npy")
    pixels.tofile(dump)
    known = ("--from", "conv2d_filter", "--dims", "6x5x3x2", "--dtype", "f16")
    found = facts(capsys, "reorder", dump, out, *known)
    assert (found["padding_zero"], found["dims"]) == (True, list(X.shape))
    assert np.load(out).tobytes() == X.astype(np.float16).tobytes()
    pixels[11, 0, 3] = 1
    pixels.tofile(dump)
    assert main(["reorder", dump, out, *known]) == 1
    assert "padding zero" in capsys.readouterr().out


def test_explain_takes_image_types(capsys: CaptureFixture[str]) -> None:
    explained = facts(capsys, "explain", "abcd", "in_out_channel", "1x6x3x2")
    assert explained["b"] == "image_desc((1, 6, 3, 2), 'f32', 'in_out_channel')"
    assert (explained["bytes_written"], explained["of_these_padding"]) == (4 * 48, 4 * 12)
    compared = facts(capsys, "explain", "in_out_channel", "in_out_width", "1x6x3x2")
    assert compared["a"] == "image_desc((1, 6, 3, 2), 'f32', 'in_out_channel')"
    assert not compared["equal"]
    same = facts(capsys, "explain", "argument", "a", "8")
    assert (same["equal"], same["reorder"]) == (False, "no-op")
