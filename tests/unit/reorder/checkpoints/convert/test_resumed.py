"""What `--resume` keeps: files whose sources, rules and headers are the same."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from memdesc import MemdescError
from reorder.checkpoints import ConvertOptions
from reorder.checkpoints.convert.conversion import Conversion, plan_conversion
from reorder.checkpoints.writer import partial_folder
from tests.checkpoints import awq_layer, write_safetensors
from tests.unit.reorder.checkpoints.convert.results import contents, ended_after

_X = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
# a shard for each tensor, and several pieces for each
_SMALL = ConvertOptions(threads=1, max_bytes=8000, shard_bytes=_X.nbytes)
_RESUME = _SMALL._replace(resume=True)


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


def begin(source: Path, target: Path, settings: ConvertOptions = _SMALL) -> None:
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
    assert planned(source, tmp_path / "fresh", _SMALL).run().resumed == 0
    assert contents(target) == contents(tmp_path / "fresh")
    assert not partial_folder(target).exists()


@pytest.mark.parametrize("change", ["bytes", "touch", "rule", "shards", "verify", "threads"])
def test_what_is_made_of_other_things_starts_again(
    source: Path, tmp_path: Path, change: str
) -> None:
    target, settings, rules = tmp_path / "out", _RESUME, ["*: ba"]
    begin(source, target)
    match change:
        case "bytes":
            write_safetensors(source / "model.safetensors", dict.fromkeys("abc", _X * 2))
        case "touch":
            (source / "model.safetensors").touch()
        case "shards":
            settings = settings._replace(shard_bytes=2 * _X.nbytes)
        case "rule":
            rules += ["a: f16"]
        case "verify":
            settings = settings._replace(verify=True)
        case _:
            settings = settings._replace(threads=3, max_bytes=20000)
    report = planned(source, target, settings, *rules).run()
    assert bool(report.resumed) == (change in {"verify", "threads"})
    planned(source, tmp_path / "fresh", settings._replace(resume=False), *rules).run()
    assert contents(target) == contents(tmp_path / "fresh")


def test_a_source_that_was_moved_or_copied_with_its_times_is_the_same(
    source: Path, tmp_path: Path
) -> None:
    begin(source, tmp_path / "out")
    shutil.copytree(source, tmp_path / "copy")
    shutil.rmtree(source)
    assert planned(tmp_path / "copy", tmp_path / "out").run().resumed


def test_without_resume_finished_files_are_discarded_and_that_is_said(
    source: Path, tmp_path: Path
) -> None:
    begin(source, tmp_path / "out")
    left = partial_folder(tmp_path / "out").stat().st_mtime_ns
    made = planned(source, tmp_path / "out", _SMALL)
    assert partial_folder(tmp_path / "out").stat().st_mtime_ns == left, "a plan writes nothing"
    assert "is discarded; --resume keeps its finished files" in " ".join(made.warnings)
    assert made.run().resumed == 0
    assert "discarded" not in " ".join(planned(source, tmp_path / "new", _SMALL).warnings)


def test_a_conversion_without_finished_files_leaves_nothing(source: Path, tmp_path: Path) -> None:
    with ended_after(2) as end:
        planned(source, tmp_path / "out.npz", _SMALL._replace(shard_bytes=None)).run(end)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_conversion_that_was_to_replace_an_output_is_resumed_and_replaces_it(
    source: Path, tmp_path: Path
) -> None:
    target = tmp_path / "out"
    planned(source, target, _SMALL, "*: f16").run()
    old = contents(target)
    begin(source, target, _SMALL._replace(overwrite=True))
    assert contents(target) == old
    with pytest.raises(MemdescError, match="exists; it is only replaced with --overwrite"):
        planned(source, target)
    assert planned(source, target, _RESUME._replace(overwrite=True)).run().resumed > 0
    planned(source, tmp_path / "fresh", _SMALL).run()
    assert contents(target) == contents(tmp_path / "fresh")


def test_a_record_in_a_file_that_is_kept_and_in_another_is_written_again(tmp_path: Path) -> None:
    layer = {f"a.{name}": array for name, array in awq_layer().items()}
    write_safetensors(tmp_path / "x.safetensors", layer | {"b": np.ones(4, np.float32)})
    settings = _SMALL._replace(
        max_bytes=1 << 20, shard_bytes=sum(x.nbytes for x in layer.values()) - 1
    )
    rule = "a: awq -> gptq(zeros=v2)"
    with ended_after() as end:
        planned(tmp_path / "x.safetensors", tmp_path / "out", settings, rule).run(end)
    assert len(finished(tmp_path / "out")) == 1
    again = planned(
        tmp_path / "x.safetensors", tmp_path / "out", settings._replace(resume=True), rule
    )
    assert again.run().resumed == 1
    planned(tmp_path / "x.safetensors", tmp_path / "fresh", settings, rule).run()
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")
