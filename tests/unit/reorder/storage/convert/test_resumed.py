"""What `--resume` continues and what it refuses: complete and unfinished outputs."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from memdesc import MemdescError
from reorder import ConvertOptions
from reorder.storage.containers.partial import partial_folder
from reorder.storage.convert.conversion import Conversion, plan_conversion
from tests.checkpoints import write_safetensors
from tests.unit.reorder.storage.convert.results import contents, ended_after

if TYPE_CHECKING:
    from pathlib import Path

_SMALL = ConvertOptions(threads=1, max_bytes=8000)
_RESUME = _SMALL._replace(resume=True)
_X = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", {"a": _X, "b": _X + 0.5})
    (folder / "tokenizer.json").write_text("{}")
    return folder


def planned(
    source: Path, target: Path, settings: ConvertOptions = _RESUME, rule: str = "*: ba"
) -> Conversion:
    return plan_conversion(source, target, [rule], settings)


def begin(source: Path, target: Path, rule: str = "*: ba") -> None:
    """Begin a conversion, and end it when some tasks are done."""
    with ended_after(3) as end:
        planned(source, target, _SMALL, rule).run(end)


def compares(made: Conversion) -> bool:
    """Whether an output that is whole is compared with what is planned."""
    return "all of it is compared" in " ".join(made.warnings)


@pytest.mark.parametrize("name", ["out", "out.safetensors", "out.gguf", "out.npz"])
def test_an_output_of_a_source_that_has_changed_since_is_refused(
    source: Path, tmp_path: Path, name: str
) -> None:
    target = tmp_path / name
    planned(source, target).run()
    write_safetensors(source / "model.safetensors", {"a": _X, "b": _X + 0.25})
    made = planned(source, target)
    assert compares(made)
    with pytest.raises(MemdescError, match="comes from another conversion: b: what was writ"):
        made.run()


def test_an_output_whose_files_beside_the_tensors_differ_is_refused(
    source: Path, tmp_path: Path
) -> None:
    target = tmp_path / "out"
    (source / "config.json").write_text('{"a": 1}')
    planned(source, target).run()
    (source / "tokenizer.json").write_text("[]")
    with pytest.raises(MemdescError, match=r"another conversion: tokenizer\.json: what was"):
        planned(source, target).run()
    (source / "tokenizer.json").write_text("{}")
    (source / "config.json").write_text('{"a": 2}')
    with pytest.raises(MemdescError, match=r"config\.json' has other headers or settings"):
        planned(source, target).run()


def test_what_does_not_change_the_bytes_leaves_an_output_complete(
    source: Path, tmp_path: Path
) -> None:
    """A source that is touched, moved, or copied; an output that is copied."""
    target = tmp_path / "out"
    planned(source, target).run()
    (source / "model.safetensors").touch()
    assert compares(planned(source, target))
    assert planned(source, target).run()
    # it has been compared, and is known now
    assert not compares(planned(source, target))
    source.rename(tmp_path / "moved")
    assert not compares(planned(tmp_path / "moved", target))
    shutil.copytree(target, tmp_path / "copy", copy_function=shutil.copyfile)
    assert planned(tmp_path / "moved", tmp_path / "copy").run()


def test_an_output_that_was_changed_after_it_was_written_is_refused(
    source: Path, tmp_path: Path
) -> None:
    target = tmp_path / "out"
    planned(source, target).run()
    with (target / "model.safetensors").open("r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(b"\0\0\0\1")
    with pytest.raises(MemdescError, match="--overwrite replaces it"):
        planned(source, target).run()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("touch", "the input has changed since: model.safetensors"),
        ("rule", "its rules differ"),
        (
            "pieces",
            "its pieces take more memory than they may now: --max-bytes 8000 allows them",
        ),
        ("shards", "its files differ"),
        ("beside", "the input has changed since: tokenizer.json"),
    ],
)
def test_what_another_conversion_left_is_refused_and_says_why(
    source: Path, tmp_path: Path, change: str, reason: str
) -> None:
    target = tmp_path / "out"
    begin(source, target)
    before = contents(partial_folder(target) / "files")
    settings, rule = _RESUME, "*: ba"
    match change:
        case "touch":
            (source / "model.safetensors").touch()
        case "beside":
            (source / "tokenizer.json").write_text("[]")
        case "pieces":
            settings = settings._replace(max_bytes=4000)
        case "shards":
            settings = settings._replace(shard_bytes=20000)
        case _:
            rule = "*: ba, scale=2.0"
    with pytest.raises(MemdescError, match="another conversion left, which cannot be") as caught:
        planned(source, target, settings, rule)
    assert reason in str(caught.value)
    assert "Without --resume it is discarded" in str(caught.value)
    assert contents(partial_folder(target) / "files") == before
    # without, it is said and done
    made = planned(source, target, settings._replace(resume=False), rule)
    assert "what an interrupted conversion left in" in " ".join(made.warnings)
    assert made.run().resumed == 0
    planned(source, tmp_path / "fresh", settings._replace(resume=False), rule).run()
    assert contents(target) == contents(tmp_path / "fresh")


def test_threads_and_memory_may_differ_if_the_pieces_still_fit(
    source: Path, tmp_path: Path
) -> None:
    planned(source, tmp_path / "whole").run()
    for k, settings in enumerate((_RESUME._replace(threads=4), _RESUME._replace(max_bytes=9000))):
        begin(source, tmp_path / f"out{k}")
        assert planned(source, tmp_path / f"out{k}", settings).run().resumed > 0
        assert contents(tmp_path / f"out{k}") == contents(tmp_path / "whole")


def test_workers_resume_pieces_that_all_of_their_threads_can_hold(
    source: Path, tmp_path: Path
) -> None:
    def on_workers(threads: int, max_bytes: int, *, resume: bool = True) -> Conversion:
        """Plan for workers of as many threads."""
        options = ConvertOptions(threads=threads, max_bytes=max_bytes, resume=resume)
        return plan_conversion(source, tmp_path / "out", ["*: ba"], options, on_workers=True)

    with ended_after(3) as end:
        on_workers(2, 16000, resume=False).run(end)
    # each of four threads holds a piece at a time
    with pytest.raises(MemdescError, match="may now: --max-bytes 32000 allows them"):
        on_workers(4, 16000)
    assert on_workers(4, 32000).bound == on_workers(2, 16000).bound
    assert on_workers(1, 16000).run().resumed > 0
    begin(source, tmp_path / "out2")
    options = _RESUME._replace(max_bytes=1 << 20)
    with pytest.raises(MemdescError, match="which is that of a worker: leave out --dask"):
        plan_conversion(source, tmp_path / "out2", ["*: ba"], options, on_workers=True)


def test_a_source_that_was_moved_is_resumed(source: Path, tmp_path: Path) -> None:
    begin(source, tmp_path / "out")
    source.rename(tmp_path / "moved")
    assert planned(tmp_path / "moved", tmp_path / "out").run().resumed > 0


def test_no_byte_of_an_output_is_of_other_rules(tmp_path: Path) -> None:
    source, target = tmp_path / "in.npz", tmp_path / "out.gguf"
    np.savez(source, a=np.full(3, 0.1, np.float32), b=np.full(3, 0.1, np.float32))

    # of the same size: what the first writes after 12 bytes is padding of the second
    with ended_after() as crash:
        planned(source, target, _SMALL, "a: f64").run(crash)
    planned(source, target, _SMALL, "a: f16").run()
    planned(source, tmp_path / "fresh.gguf", _SMALL, "a: f16").run()
    assert target.read_bytes() == (tmp_path / "fresh.gguf").read_bytes()


def test_a_conversion_that_was_to_replace_an_output_is_resumed_and_replaces_it(
    source: Path, tmp_path: Path
) -> None:
    target = tmp_path / "out"
    planned(source, target, _SMALL, "*: f16").run()
    old = contents(target)

    with ended_after() as end:
        planned(source, target, _SMALL._replace(overwrite=True)).run(end)
    assert contents(target) == old
    with pytest.raises(MemdescError, match="exists; it is only replaced with --overwrite"):
        planned(source, target)
    assert planned(source, target, _RESUME._replace(overwrite=True)).run().resumed > 0
    planned(source, tmp_path / "fresh").run()
    assert contents(target) == contents(tmp_path / "fresh")


def test_a_source_that_is_removed_meanwhile_ends_in_an_error(source: Path, tmp_path: Path) -> None:
    tasks = planned(source, tmp_path / "whole").run().tasks
    for name in ("tokenizer.json", "model.safetensors"):
        made = planned(source, tmp_path / "out", _SMALL)
        left = [tasks]

        def remove(*_: object, left: list[int] = left, name: str = name) -> None:
            left[0] -= 1
            if not left[0]:
                (source / name).rename(tmp_path / name)

        with pytest.raises(MemdescError, match=f"{name}' cannot be read: No such file"):
            made.run(remove)
        assert not (tmp_path / "out").exists()
        (tmp_path / name).rename(source / name)


def test_two_conversions_into_one_output_do_not_both_succeed(source: Path, tmp_path: Path) -> None:
    first, second = planned(source, tmp_path / "out", _SMALL), planned(source, tmp_path / "out")
    assert first.run()
    with pytest.raises(MemdescError, match="exists; it is only replaced with --overwrite"):
        replace(second, options=_SMALL).run()


def test_a_target_that_another_program_makes_meanwhile_is_not_replaced(
    source: Path, tmp_path: Path
) -> None:
    for name in ("out", "out.safetensors"):
        target = tmp_path / name

        def make(*_: object, target: Path = target) -> None:
            target.write_text("somebody's")

        with pytest.raises(MemdescError, match="exists; it is only replaced with --overwrite"):
            planned(source, target, _SMALL).run(make)
        assert target.read_text() == "somebody's"
        target.unlink()
        assert planned(source, target).run().resumed > 0


def test_an_array_that_is_whole_is_known_though_its_name_is_that_of_the_file(
    tmp_path: Path,
) -> None:
    source, target = tmp_path / "in.safetensors", tmp_path / "out.npy"
    write_safetensors(source, {"a": _X})
    planned(source, target).run()
    assert planned(source, target).run().tasks == 0
    write_safetensors(source, {"a": _X + 1})
    with pytest.raises(MemdescError, match="comes from another conversion: a: what was writ"):
        planned(source, target).run()


def test_a_piece_whose_bytes_have_changed_is_written_again(source: Path, tmp_path: Path) -> None:
    planned(source, tmp_path / "wanted").run()
    begin(source, tmp_path / "out")
    grown = partial_folder(tmp_path / "out") / "files" / "model.safetensors"
    words, whole = grown.read_bytes(), (tmp_path / "wanted" / "model.safetensors").read_bytes()
    at = len(whole) - 2 * _X.nbytes  # the first tensor is written already
    assert words[at : at + 16] == whole[at : at + 16] != bytes(16)
    grown.write_bytes(words[:at] + bytes([words[at] ^ 1]) + words[at + 1 :])
    report = planned(source, tmp_path / "out").run()
    assert contents(tmp_path / "out") == contents(tmp_path / "wanted")
    assert 0 < report.resumed < report.tasks
