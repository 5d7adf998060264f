from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

import reorder
from reorder.cli import main


@pytest.fixture
def dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A dump of OpenVINO, and ref.npy with the same values but for some."""
    monkeypatch.chdir(tmp_path)
    x = np.arange(340, dtype=np.float16).reshape(1, 17, 5, 4)
    name = "conv_dst0__f16__1_17_5_4__b_fs_yx_fsv16.bin"
    reorder.reorder(x, "b_fs_yx_fsv16").data.tofile(name)
    y = x.astype(np.float32)
    np.save("same.npy", y)
    y[0, 16, 2:4, 1:] += 0.5
    y[0, 3, 0, 0] = np.nan
    np.save("ref.npy", y)
    return name


_LAYOUT = ("--from-a", "f16:b_fs_yx_fsv16:1x17x5x4:nopad")


def test_compare_lists_what_differs_and_where(
    dump: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", dump, "ref.npy", *_LAYOUT, "--limit", "2"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "differing         7" in lines
    assert lines[4:7] == [
        "max ulp           2",
        "mean error        0.0088495575",
        "cosine            0.99999995",
    ]
    places = (
        "offset 3 (byte 6) in a, 60 (byte 240) in b",
        "offset 464 (byte 928) in a, 329 (byte 1316) in b",
    )
    assert lines[8:] == [
        f"first             (0, 3, 0, 0): 60.0 and nan, inf apart; {places[0]}",
        f"                  (0, 16, 2, 1): 329.0 and 329.5, 0.5 apart; {places[1]}",
        "where             a (dim 0): all of 1",
        "                  b (dim 1): 3, 16 of 17",
        "                  c (dim 2): 0, 2 to 3 of 5",
        "                  d (dim 3): all of 4",
        "padding not zero  a 0, b 0",
        "padding differs   no",
    ]


def test_compare_prints_json(dump: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", dump, "ref.npy", *_LAYOUT, "--json", "--tolerance", "0.5"]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert facts["worst"]["b"] == "nan"
    assert facts["where"][1] == {"dim": "b (dim 1)", "differing": [[3, 3]], "of": 17}


def test_compare_of_equal_values_ends_with_0(dump: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", dump, "same.npy", *_LAYOUT]) == 0
    assert "differing         0" in capsys.readouterr().out


def test_many_places_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.zeros(40, np.int8)
    np.save(tmp_path / "a.npy", x)
    x[::2] = 1
    np.save(tmp_path / "b.npy", x)
    assert main(["compare", str(tmp_path / "a.npy"), str(tmp_path / "b.npy")]) == 1
    assert "a (dim 0): 0, 2, 4, 6, 8, 10, 12, 14, ... (20 ranges) of 40" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing", "ref.npy", *_LAYOUT], "'missing' cannot be read: No such file"),
        (["ref.npy", "ref.npy", *_LAYOUT], "'ref.npy' holds float32, not f16"),
        (
            ["dump.bin", "ref.npy"],
            "holds raw bytes, and its name does not say which; give --from-a",
        ),
        (
            ["ref.npy", "dump.bin"],
            "holds raw bytes, and its name does not say which; give --from-b",
        ),
        (["ref.npy", "ref.npy", "--from-a", "(8"], "unknown format '(8'"),
        (["ref.npy", "ref.npy", "--tolerance", "-1"], "tolerance must be a finite number"),
    ],
)
def test_bad_arguments_of_compare_are_refused(
    dump: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(dump).rename("dump.bin")
    assert main(["compare", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--dims", "1x17x5x4", "--dtype", "f16"],
        ["--from", "f16:b_fs_yx_fsv16:1x17x5x4:nopad"],
        ["--among", "b_fs_yx_*,bfyx", "--dims", "1x17x5x4", "--dtype", "f16"],
    ],
)
def test_reorder_finds_the_layout_of_a_dump(dump: str, options: list[str]) -> None:
    assert main(["reorder", dump, "out.npy", *options]) == 0
    assert reorder.compare_values(reorder.load("out.npy"), np.load("same.npy")).is_equal


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--from", "bfyx"], "'bfyx' does not contain the sizes; give dims"),
        (["--among", "bfyx"], "--among needs --dims"),
        (["--among", "bfyx", "--from", "bfyx", "--dims", "1x2"], "--among needs --dims"),
        (["--among", "bfyx", "--dims", "1x17x5x4"], "1280 bytes with zero padding may be none"),
        (["--among", "*", "--dims", "1x17x5x4"], "may be u16 aBcd16b; u16 aBdc16b; name one"),
        (["--dims", "1x17x5x5"], "not the given"),
    ],
)
def test_reorder_refuses_what_does_not_say_one_layout(
    dump: str, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reorder", dump, "out.npy", *options]) == 2
    assert message in capsys.readouterr().err


def test_reorder_says_which_name_of_a_file_it_did_not_understand(
    dump: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(dump).rename("dump.bin")
    assert main(["reorder", "dump.bin", "out.npy"]) == 2
    said = capsys.readouterr().err
    assert "'dump.bin' holds raw bytes, and its name does not say which; give --from" in said
    assert main(["reorder", "no", "out.npy", "--among", "*", "--dims", "2x3"]) == 2
    assert "'no' cannot be read: No such file" in capsys.readouterr().err


@pytest.fixture
def packings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same weights as checkpoints store them, in words, and with descriptors."""
    monkeypatch.chdir(tmp_path)
    q = np.random.default_rng(0).integers(0, 16, (128, 64), np.uint8)
    for name in ("gptq", "awq", "marlin"):
        packed = reorder.reorder(q, name, dtype="u4")
        reorder.save(f"{name}.safetensors", packed)
        words = packed.data.view(np.int32).reshape(16 if name == "gptq" else 8, -1)
        np.save(f"{name}_words.npy", words)
        np.savez(f"{name}.npz", up=words)
    np.save("plain.npy", q)


@pytest.mark.parametrize("pair", [("gptq", "awq"), ("awq", "marlin"), ("marlin", "gptq")])
def test_packings_of_the_same_numbers_are_equal(
    pair: tuple[str, str], packings: None, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = pair
    assert packings is None
    assert main(["compare", f"{a}.safetensors", f"{b}.safetensors"]) == 0
    layouts = [f"--from-{side}=u4:{name}:128x64" for side, name in zip("ab", pair, strict=True)]
    assert main(["compare", f"{a}_words.npy", f"{b}_words.npy", *layouts]) == 0
    assert main(["compare", f"{a}.npz:up", f"{b}.safetensors", layouts[0]]) == 0
    assert main(["compare", f"{a}.safetensors", "plain.npy", layouts[0]]) == 0
    wrong = ["compare", f"{a}_words.npy", f"{b}_words.npy", layouts[0], f"--from-b=u4:{a}:128x64"]
    assert main(wrong) == 1
    told = ["compare", f"{a}.safetensors", f"{b}.safetensors", f"--from-b=u4:{a}:128x64"]
    assert main(told) == 2
    assert "leave --from-b out" in capsys.readouterr().err
    capsys.readouterr()
    assert main(["compare", f"{a}_words.npy", "plain.npy"]) == 2
    assert "say what they are, such as --from-a u4:gptq:4096x4096" in capsys.readouterr().err


def test_a_pipe_is_not_waited_for(dump: str, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo("pipe")
    assert main(["compare", "pipe", "ref.npy", *_LAYOUT]) == 2
    assert main(["compare", dump, "pipe", *_LAYOUT]) == 2
    assert main(["check", "pipe"]) == 2
    assert capsys.readouterr().err.count("'pipe' cannot be read: it is a folder or a device") == 3


def test_the_step_of_the_coarser_type_is_tolerated_where_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).standard_normal((17, 40), np.float32)
    np.save("x.npy", x)
    reorder.save("half.safetensors", reorder.reorder(x, "Ab16a", dtype="bf16"))
    assert main(["compare", "x.npy", "half.safetensors"]) == 1
    assert main(["compare", "x.npy", "half.safetensors", "--resolution", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert 0.4 < facts["max_ulp"] <= 0.5
    assert 0 < facts["mean_error"] < 0.01
    assert 0.9999 < facts["cosine"] < 1
    x[3, 4] *= 1.02
    np.save("x.npy", x)
    assert main(["compare", "x.npy", "half.safetensors", "--resolution"]) == 1
    assert "differing         1\n" in capsys.readouterr().out


def test_layouts_may_be_given_apart_from_sizes_and_type(dump: str) -> None:
    Path(dump).rename("dump.bin")
    told = ("--from-a", "b_fs_yx_fsv16", "--dims", "1x17x5x4", "--dtype", "f16")
    assert main(["compare", "dump.bin", "dump.bin", *told, "--from-b", "b_fs_yx_fsv16"]) == 0
