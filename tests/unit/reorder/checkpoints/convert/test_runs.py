"""Conversions that run: progress, callbacks, what `--resume` keeps, and what goes wrong."""

import os
import resource
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reorder
import reorder.disk
from memdesc import MemdescError, memory_desc
from reorder.checkpoints import ConvertOptions, ConvertProgress, ConvertReport
from reorder.checkpoints import writer as writing
from reorder.checkpoints.convert.conversion import Conversion, plan_conversion
from reorder.checkpoints.formats.table import read_container
from reorder.checkpoints.moves import tasks
from reorder.checkpoints.moves.changes import Reorder
from reorder.checkpoints.writer import InUseError, partial_folder
from reorder.cli.reorder import Output, reorder_file
from tests.checkpoints import awq_layer, model_folder, write_safetensors
from tests.programs import run_python
from tests.unit.reorder.checkpoints.convert.results import contents, ended_after
from tests.writers import one_tensor

# copies, a layout, a record, numbers of a record, scales from the data, a file next to the tensors
_RULES = (
    "conv.weight: OIhw16i16o",
    "*.0.mlp: awq -> gptq",
    "*.1.mlp: awq -> ab, f32",
    "lm_head.weight: u8, scales=a",
)
_OPTIONS = ConvertOptions(max_bytes=20_000, threads=2)
# many tasks, one at a time
_SMALL = ConvertOptions(threads=1, max_bytes=8000)


def run(
    source: str | Path, target: str | Path, progress: Any = None, **given: Any
) -> ConvertReport:
    options = _OPTIONS._replace(**given)
    return reorder.convert(source, target, map=_RULES, options=options, progress=progress)


def test_progress_counts_every_byte_once(model: Path, tmp_path: Path) -> None:
    seen: list[ConvertProgress] = []
    report = run(model, tmp_path / "out", seen.append, verify=True)
    first, *rest = seen
    assert (first.stage, first.done, first.report.warnings) == ("planned", 0, report.warnings)
    assert [now.done for now in rest] == sorted(now.done for now in rest)
    assert {now.stage for now in rest} == {"converting", "verifying"}
    assert {now.total for now in seen} == {rest[-1].done}
    converted = [now for now in rest if now.stage == "converting"]
    assert len(converted) > 10
    assert 2 * converted[-1].done == rest[-1].done
    assert report.resumed == 0


def test_a_dry_run_says_what_would_become_of_each_tensor(model: Path, tmp_path: Path) -> None:
    seen: list[ConvertProgress] = []
    report = run(model, tmp_path / "out", seen.append, dry_run=True)
    assert [now.stage for now in seen] == ["planned"]
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert (report.weights, report.converted, report.copied) == (5, 4, 1)
    assert report.would[-1] == (
        "conv.weight: memory_desc((20, 6, 3, 3), 'f32', 'abcd') -> "
        "memory_desc((20, 6, 3, 3), 'f32', 'ABcd16b16a')"
    )
    done = run(model, tmp_path / "out")
    assert done.would == ()
    assert (done.bytes_in, done.bytes_out) == (report.bytes_in, report.bytes_out)
    assert done.bytes_out == sum(map(len, contents(tmp_path / "out").values()))


def test_rules_are_lines_and_files(model: Path, tmp_path: Path) -> None:
    rules = tmp_path / "rules.txt"
    rules.write_text(
        "# all floats, but not the last one\n\n*.weight: f32\n"
        "model.layers.*: awq -> gptq(zeros=v2, g_idx=true)\n"
        "lm_head.weight: ab, dims=80x64\n"
    )
    report = reorder.convert(model, tmp_path / "out", map=[rules, "conv.weight: ohwi"])
    assert report.converted == 4
    with reorder.open_checkpoint(tmp_path / "out") as found:
        assert str(found["conv.weight"].desc).endswith("'acdb')")
        assert str(found["lm_head.weight"].desc) == "memory_desc((80, 64), 'f16', 'ab')"
        assert dict(found.record("model.layers.0.mlp").desc.options)["zeros"] == "v2"


@pytest.mark.parametrize("error", [OSError(5, "mine", "theirs"), StopIteration(), SystemExit(3)])
@pytest.mark.parametrize("stage", ["planned", "converting", "verifying"])
def test_what_a_callback_raises_comes_back_as_it_is(
    model: Path, tmp_path: Path, error: BaseException, stage: str
) -> None:
    def fail(now: ConvertProgress) -> None:
        if now.stage == stage:
            raise error

    with pytest.raises(type(error)) as caught:
        run(model, tmp_path / "out", fail, verify=True)
    assert caught.value is error
    assert not (tmp_path / "out").exists()
    assert run(model, tmp_path / "out", verify=True, resume=True)


def test_a_callback_may_change_the_working_folder(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    run(model.name, "out", lambda _: os.chdir(tmp_path / "elsewhere"), verify=True)
    monkeypatch.chdir(tmp_path)
    run(model.name, tmp_path / "wanted")
    assert contents(tmp_path / "out") == contents(tmp_path / "wanted")


def test_a_callback_may_convert_something_else_but_not_the_same(
    model: Path, tmp_path: Path
) -> None:
    left = ["other", "out"]

    def again(now: ConvertProgress) -> None:
        if now.stage == "converting" and left:
            run(model, tmp_path / left.pop(0))

    with pytest.raises(MemdescError, match="another process is writing into"):
        run(model, tmp_path / "out", again)
    run(model, tmp_path / "out", resume=True)
    assert contents(tmp_path / "out") == contents(tmp_path / "other")


# What `--resume` keeps: files whose sources, rules and headers are the same.


_X = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
# a shard for each tensor, and several pieces for each
_SHARDS = _SMALL._replace(shard_bytes=_X.nbytes)
_RESUME = _SHARDS._replace(resume=True)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", {name: _X + k for k, name in enumerate("abc")})
    (folder / "tokenizer.json").write_text("{}")
    return folder


def planned(
    source: Path, target: Path, settings: ConvertOptions = _RESUME, *rules: str
) -> Conversion:
    return plan_conversion(source, target, rules or ("*: ba",), settings)


def begin(source: Path, target: Path, settings: ConvertOptions = _SHARDS) -> None:
    """Begin a conversion, and end it in the second of its three shards."""
    pieces = planned(source, target, settings).steps[0].pieces.number
    with ended_after(pieces + 2) as end:
        planned(source, target, settings).run(end)
    assert "model-00001-of-00003.safetensors" in finished(target)
    assert "model-00002-of-00003.safetensors" not in finished(target)


def finished(target: Path) -> list[str]:
    """Return the names of the finished files of an interrupted conversion."""
    left = contents(partial_folder(target) / "files")
    return [name.rpartition("/")[2] for name in left]


def test_finished_files_are_kept_and_the_others_start_again(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    begin(source, target)
    kept = len(finished(target))
    seen: list[int] = []
    report = planned(source, target).run(lambda now: seen.append(now.total))
    assert report.resumed == kept
    # the last task of what is kept is not counted again
    assert {*seen} == {2 * _X.nbytes + 2}
    assert planned(source, tmp_path / "fresh", _SHARDS).run().resumed == 0
    assert contents(target) == contents(tmp_path / "fresh")
    assert not partial_folder(target).exists()


def _same_times(folder: Path) -> None:
    """Put a copy of a folder, with its times, in its place."""
    shutil.copytree(folder, folder.with_name("copy"))
    shutil.rmtree(folder)
    folder.with_name("copy").rename(folder)


@pytest.mark.parametrize(
    ("damage", "given", "rules", "is_kept"),
    [
        (Path.stat, {"verify": True}, (), True),
        (Path.stat, {"threads": 3, "max_bytes": 20000}, (), True),
        (lambda path: _same_times(path.parent), {}, (), True),
        (lambda path: write_safetensors(path, dict.fromkeys("abc", _X * 2)), {}, (), False),
        (Path.touch, {}, (), False),
        (Path.stat, {"shard_bytes": 2 * _X.nbytes}, (), False),
        (Path.stat, {}, ("*: ba", "a: f16"), False),
    ],
)
def test_what_is_made_of_other_things_starts_again(
    source: Path,
    tmp_path: Path,
    damage: Callable[[Path], object],
    given: dict[str, Any],
    rules: tuple[str, ...],
    *,
    is_kept: bool,
) -> None:
    target, settings = tmp_path / "out", _RESUME._replace(**given)
    begin(source, target)
    damage(source / "model.safetensors")
    report = planned(source, target, settings, *rules).run()
    assert bool(report.resumed) == is_kept
    planned(source, tmp_path / "fresh", settings._replace(resume=False), *rules).run()
    assert contents(target) == contents(tmp_path / "fresh")


def test_a_file_whose_header_has_changed_starts_again(tmp_path: Path) -> None:
    """All shards get the metadata of all, so the files that one is made of may be the same."""
    names = [f"model-0000{k}-of-00002.safetensors" for k in (1, 2)]
    source, target, fresh = (tmp_path / each for each in ("model", "out", "fresh"))
    source.mkdir()
    for name, tensor in zip(names, "ab", strict=True):
        write_safetensors(source / name, {tensor: _X}, {"step": "1"} if tensor == "b" else None)
    first = planned(source, target, _SHARDS)
    with ended_after(first.steps[0].pieces.number + 1) as end:
        first.run(end)
    assert finished(target) == names[:1]
    write_safetensors(source / names[1], {"b": _X}, {"step": "2"})
    assert planned(source, target).run().resumed == 0
    planned(source, fresh, _SHARDS).run()
    assert contents(target) == contents(fresh)
    assert read_container(target).metadata["step"] == "2"


def test_without_resume_finished_files_are_discarded(source: Path, tmp_path: Path) -> None:
    begin(source, tmp_path / "out")
    left = partial_folder(tmp_path / "out").stat().st_mtime_ns
    made = planned(source, tmp_path / "out", _SHARDS)
    assert partial_folder(tmp_path / "out").stat().st_mtime_ns == left, "a plan writes nothing"
    assert made.run().resumed == 0


def test_a_conversion_without_finished_files_leaves_nothing(source: Path, tmp_path: Path) -> None:
    with ended_after(2) as end:
        planned(source, tmp_path / "out.npz", _SMALL).run(end)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_conversion_that_was_to_replace_an_output_is_resumed_and_replaces_it(
    source: Path, tmp_path: Path
) -> None:
    target = tmp_path / "out"
    planned(source, target, _SHARDS, "*: f16").run()
    old = contents(target)
    begin(source, target, _SHARDS._replace(overwrite=True))
    assert contents(target) == old
    with pytest.raises(MemdescError, match="exists; it is only replaced with --overwrite"):
        planned(source, target)
    assert planned(source, target, _RESUME._replace(overwrite=True)).run().resumed > 0
    planned(source, tmp_path / "fresh", _SHARDS).run()
    assert contents(target) == contents(tmp_path / "fresh")


def test_a_record_in_a_file_that_is_kept_and_in_another_is_written_again(tmp_path: Path) -> None:
    layer = {f"a.{name}": array for name, array in awq_layer().items()}
    write_safetensors(tmp_path / "x.safetensors", layer | {"b": np.ones(4, np.float32)})
    size = sum(x.nbytes for x in layer.values()) - 1
    settings = _SMALL._replace(max_bytes=1 << 20, shard_bytes=size)

    def again(name: str, *, resume: bool) -> Conversion:
        options = settings._replace(resume=resume)
        return planned(
            tmp_path / "x.safetensors", tmp_path / name, options, "a: awq -> gptq(zeros=v2)"
        )

    with ended_after() as end:
        again("out", resume=False).run(end)
    assert len(finished(tmp_path / "out")) == 1
    assert again("out", resume=True).run().resumed == 1
    again("fresh", resume=False).run()
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")


# Conversions that are killed, run out of disk, lose their source, or meet damage.


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(2))
def test_conversions_that_are_killed_at_many_moments(tmp_path: Path, seed: int) -> None:
    model_folder(tmp_path / "model", layers=6)
    program = Path(__file__).with_name("kill_program.py")
    said = run_python(program, tmp_path, "50", str(seed)).stdout
    killed, whole, resumed = map(int, said.split())
    sys.stdout.write(f"{killed} kills, {whole} conversions whole, {resumed} files kept\n")
    assert killed >= 50
    assert whole
    assert resumed


def test_a_disk_that_fills_half_way_ends_in_an_error(model: Path, tmp_path: Path) -> None:
    made = planned(model, tmp_path / "out", _SMALL, *_RULES)
    made.writer.begin()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    half = [*made.writer.files.values()][-1].nbytes // 2
    resource.setrlimit(resource.RLIMIT_FSIZE, (half, limits[1]))
    try:
        with pytest.raises(MemdescError, match="cannot be written: File too large"):
            made.run()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not (tmp_path / "out").exists()
    assert not partial_folder(tmp_path / "out").exists()  # no file was finished
    run(model, tmp_path / "out", resume=True)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda path: os.truncate(path, 5000), "it was shortened after"),
        (lambda path: os.truncate(path, 0), "it was shortened after"),
        (Path.touch, "has changed while it was converted"),
        (Path.unlink, "cannot be read: No such file"),
    ],
)
@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_a_source_that_changes_meanwhile_ends_in_an_error(
    model: Path, tmp_path: Path, damage: Callable[[Path], object], said: str, name: str
) -> None:
    (model / "tokenizer.json").write_text("{}" * 3000)
    made = planned(model, tmp_path / "out", _SMALL, *_RULES)
    damage(model / name)
    with pytest.raises(MemdescError, match=said):
        made.run()
    assert not (tmp_path / "out").exists()


def test_memory_stays_within_the_bound_however_large_tensors_are(tmp_path: Path) -> None:
    """100 MB, of which no more than 8 MiB and what the program itself needs may be held."""
    source, target = tmp_path / "in.npy", tmp_path / "out.npy"
    np.lib.format.open_memmap(source, "w+", np.float32, (5000, 5000)).flush()
    arguments = [str(source), str(target), "--map", "*: ba", "--max-bytes", "8MiB"]
    # not ru_maxrss, which a process inherits from the one that starts it
    code = (
        "import re, sys; from reorder.cli import main; main(['convert', *sys.argv[1:]]); "
        "print(re.search(r'VmHWM:\\s*(\\d+) kB', open('/proc/self/status').read())[1])"
    )
    peak = int(run_python("-c", code, *arguments).stdout.split()[-1]) << 10
    assert target.stat().st_size > 100_000_000
    assert peak < (8 << 20) + 300_000_000


def test_bytes_that_are_damaged_on_their_way_are_found_when_they_are_read_back(
    model: Path, tmp_path: Path
) -> None:
    def damage(now: ConvertProgress) -> None:
        if now.stage == "converting" and now.done == now.total // 2:
            (path,) = partial_folder(tmp_path / "out").rglob("model.safetensors")
            with path.open("r+b") as file:
                file.seek(-100, os.SEEK_END)
                file.write(b"x" * 100)

    with pytest.raises(MemdescError, match="what was written differs from the definition"):
        run(model, tmp_path / "out", damage, verify=True)
    assert not (tmp_path / "out").exists()


def test_a_reorder_between_files_that_fails_leaves_nothing(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((64, 64), np.float32))
    (entry,) = read_container(tmp_path / "x.npy").entries.values()
    src, dst = (memory_desc((64, 64), "f32", tag) for tag in ("ab", "ba"))
    target = tmp_path / "y.bin"

    def touch(_: int) -> None:
        (tmp_path / "x.npy").touch()

    with pytest.raises(MemdescError, match="has changed while it was converted"):
        reorder_file(entry, Reorder(src, dst), target, Output(dst).planned(target), _SMALL, touch)
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]


# A system without locks of folders or reads at offsets.


@pytest.fixture
def _less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "fcntl", None)
    for name in ("_HAS_OFFSETS", "_OPENS_FOLDERS"):
        monkeypatch.setattr(reorder.disk, name, False)
    monkeypatch.setattr(writing, "system_function", lambda *_: None)
    monkeypatch.setattr(tasks, "_sync_file_range", lambda: None)
    for name in ("preadv", "pwrite", "posix_fallocate"):
        monkeypatch.delattr(os, name, raising=False)


@pytest.mark.usefixtures("_less")
def test_one_process_writes_at_a_time_and_a_lock_that_was_left_is_named(tmp_path: Path) -> None:
    target = tmp_path / "x.safetensors"
    folder = partial_folder(target)
    with one_tensor(target):
        with pytest.raises(InUseError, match="lock', which a killed process left"):
            one_tensor(target)
        assert (folder / "lock").exists()
    (folder / "lock").touch()  # as a killed process leaves it
    with pytest.raises(InUseError):
        one_tensor(target, resume=True)
    (folder / "lock").unlink()
    one_tensor(target, resume=True).close()


@pytest.mark.usefixtures("_less")
def test_a_checkpoint_is_converted_to_the_same_bytes_after_an_interrupt_too(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    portable, usual = tmp_path / "portable", tmp_path / "usual"
    with ended_after(8) as end:
        run(model, portable, end, threads=1, shard_bytes=20_000)
    assert partial_folder(portable).exists()
    run(model, portable, resume=True)
    with pytest.raises(MemdescError, match="cannot replace a folder in one step"):
        run(model, portable, overwrite=True)
    monkeypatch.undo()
    run(model, usual)
    assert contents(usual) == contents(portable)
    assert not partial_folder(portable).exists()
