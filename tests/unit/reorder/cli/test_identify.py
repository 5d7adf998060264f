from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import reorder
from memdesc import data_type

if TYPE_CHECKING:
    from tests.unit.reorder.cli.shell import Shell

_TAG = "AB8b/1.4a/2.4b/16.2a/1.2b/8.2a/8"


@pytest.fixture
def weights(shell: Shell) -> np.ndarray:
    """Save 4-bit weights packed in a raw file after 8 bytes, and plain ones in q.npy."""
    del shell  # it enters the folder
    q = np.random.default_rng(0).integers(0, 16, (64, 128), np.uint8)
    packed = reorder.reorder(q, "marlin", dtype="u4").data.tobytes()
    Path("dump.bin").write_bytes(bytes(8) + packed)
    np.save("q.npy", q)
    return q


def test_the_layout_of_a_dump_is_found_by_its_values(shell: Shell, weights: np.ndarray) -> None:
    found = shell.facts("identify dump.bin --like q.npy --offset 8")
    assert (found["bytes"], found["row_major"]) == (weights.size // 2, False)
    (layout,) = found["layouts"]
    assert layout["names"][-1]["text"] == "marlin"
    assert layout["order"] == [0, 1]
    assert (layout["padding_elements"], layout["padding_zero"]) == (0, True)
    lines = shell.lines("identify dump.bin --like q.npy --offset 8")
    assert lines[0].endswith(f"4096 bytes: one layout gives these bytes: {_TAG} (marlin)")
    assert lines[1].endswith(f"'{_TAG}'): {_TAG}, marlin")


def test_names_of_the_dims_in_another_order_say_so(shell: Shell) -> None:
    x = np.arange(240, dtype=np.float32).reshape(2, 6, 5, 4)
    np.save("x.npy", x)
    reorder.reorder(x, "aBcd24b").data.tofile("dump.bin")
    shown = shell.lines("identify dump.bin --like x.npy")
    assert "'aBcd24b'): aBdc24b, gOwi24o of the dims in the order a b d c; " in shown[1]


def test_an_offset_makes_any_file_raw_bytes(shell: Shell, weights: np.ndarray) -> None:
    found = shell.facts("identify q.npy --like q.npy --offset 128")
    assert (found["bytes"], found["row_major"]) == (weights.size, True)


def test_without_a_reference_what_remains_is_listed(shell: Shell) -> None:
    reorder.reorder(np.ones((2, 17, 5, 4), np.float32), "nChw8c").data.tofile("x.bin")
    found = shell.facts("identify x.bin --dims 2x17x5x4 --dtype f32", 1)
    assert [each["padding_elements"] for each in found["layouts"]] == [280, 280]
    lines = shell.lines("identify x.bin --dims 2x17x5x4 --dtype f32", 1)
    assert "leave 2 layouts; a tensor of the same values tells them apart" in lines[0]
    assert lines[1] == (
        "ordinary values if the type is: f32 100%, s32 0%, u32 0% "
        "(zeros aside, magnitudes from 1e-6 to 1e6: a low share rules a type out)"
    )
    assert lines[2].endswith("; 280 padding")
    np.zeros(256, np.uint8).tofile("zeros.bin")
    last = shell.lines("identify zeros.bin --dims 4x4x4x4 --dtype u8", 1)[-1]
    assert re.fullmatch(r"\.\.\. and \d+ more; --json lists them", last)


def test_a_layout_has_the_type_of_the_file_or_of_the_bytes_or_none(shell: Shell) -> None:
    x = np.random.default_rng(0).standard_normal((6, 10))
    for dtype in ("float32", "float16", "int8"):
        np.save("x.npy", (10 * x).astype(dtype))
        saved = shell.facts("identify x.npy --dims 6x10", 1)
        assert {each["dtype"] for each in saved["layouts"]} == {str(data_type(dtype))}
    # f16 looks like an integer of 16 bits, too
    x.astype(np.float32).tofile("f32.bin")
    x.astype(np.float16).tofile("f16.bin")
    (one, *_) = shell.facts("identify f32.bin --dims 6x10", 1)["layouts"]
    assert one["layout"] == "memory_desc((6, 10), 'f32', 'ab')"
    (one, *_) = shell.facts("identify f16.bin --dims 6x10", 1)["layouts"]
    assert (one["layout"], one["dtype"]) == ("(6, 10) elements of 2 bytes", None)


def test_a_layout_in_another_type_ends_with_1(shell: Shell) -> None:
    x = np.random.default_rng(0).standard_normal((4, 8), np.float32)
    np.save("x.npy", x)
    reorder.reorder(x, "ba", dtype="bf16").data.tofile("x.bin")
    (line,) = shell.lines("identify x.bin --like x.npy --dtype f16", 1)
    assert "elements of f16 gives these bytes; as bf16, ba (" in line
    assert shell.facts("identify x.bin --like x.npy --dtype bf16")["near"] == []


def test_each_tensor_of_a_set_is_plain_or_packed(shell: Shell) -> None:
    rng = np.random.default_rng(0)
    plain = {name: rng.integers(0, 16, (64, 128), np.uint8) for name in ("a", "bb", "c", "d")}
    packed = {"a": reorder.reorder(plain["a"], "marlin", dtype="u4").data, "bb": plain["bb"]}
    packed["f"] = plain["f"] = np.ones((2, 3), np.float32)
    reorder.save("packed.npz", {**packed, "c": plain["a"], "e": plain["d"]})
    reorder.save("plain.npz", plain)
    one = shell.facts("identify packed.npz:a --like plain.npz:a")
    assert one["verdict"].endswith("(marlin)")
    found = shell.facts("identify packed.npz --like plain.npz", 1)
    rows = [(each["tensor"], each["row_major"]) for each in found["tensors"]]
    assert rows == [("a", False), ("bb", True), ("f", True), ("c", False)]
    assert found["not_compared"] == ["d", "e"]
    lines = shell.lines("identify packed.npz --like plain.npz", 1)
    assert re.fullmatch(r"a   one layout gives these bytes: .* \(marlin\)", lines[0])
    assert lines[1:] == [
        "bb  plain",
        (
            "f   2 layouts give these bytes, since the values do not tell them apart: "
            "ab (nc, oi, tn); ba (cn, io, nt)"
        ),
        "c   no known layout of (64, 128) elements of u8 or u4 gives these bytes",
        "d   not in both files",
        "e   not in both files",
    ]


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("dump.bin", "give --like, a tensor of the same values, or --dims, the logical sizes"),
        ("nothing.bin --dims 2", "'nothing.bin' cannot be read: No such file or directory"),
        ("dump.bin --dims 2 --offset -1", "--offset -1: 'dump.bin' has 4104 bytes"),
        ("dump.bin --dims 2 --offset 99999999999", "so no tensor can start there"),
        ("dump.bin --like pipe", "'pipe' cannot be read: it is a folder or a device"),
        (". --dims 2", "'.' cannot be read: "),
        ("q.npz --dims 2", "'q.npz' has 2 tensors: a, b; "),
        ("q.npz --like q.npz --dims 2", "--dims and --offset are for one tensor"),
        ("q.npz --like q.npz --offset 0", "--dims and --offset are for one tensor"),
        ("dump.bin --dims 64x64 --atol 1", "a tolerance is for values"),
        ("q.npz --like q.npy", "'q.npz' has 2 tensors: a, b; "),
        ("q.npz --like r.npz", "'q.npz' and 'r.npz' have no tensor of the same name"),
    ],
)
def test_what_cannot_be_identified_is_refused(
    shell: Shell, weights: np.ndarray, command: str, reason: str
) -> None:
    np.savez("q.npz", a=weights, b=weights)
    np.savez("r.npz", c=weights)
    os.mkfifo("pipe")
    assert reason in shell.refusal(f"identify {command}")
