"""`reorder.convert`: what it takes, what it says while it runs, and what it returns."""

import os
from pathlib import Path

import pytest

import reorder
from memdesc import MemdescError
from tests.unit.reorder.checkpoints.convert.results import contents

# copies, a layout, a record, numbers of a record, scales from the data, a file next to the tensors
_RULES = (
    "conv.weight: OIhw16i16o",
    "*.0.mlp: awq -> gptq",
    "*.1.mlp: awq -> ab, f32",
    "lm_head.weight: u8, scales=a",
)
_SMALL = reorder.checkpoints.ConvertOptions(max_bytes=20_000, threads=2)


def test_progress_counts_every_byte_once(model: Path, tmp_path: Path) -> None:
    seen: list[reorder.checkpoints.ConvertProgress] = []
    options = _SMALL._replace(verify=True)
    report = reorder.convert(
        model, tmp_path / "out", map=_RULES, options=options, progress=seen.append
    )
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
    seen: list[str] = []
    options = _SMALL._replace(dry_run=True)
    report = reorder.convert(
        model,
        tmp_path / "out",
        map=_RULES,
        options=options,
        progress=lambda now: seen.append(now.stage),
    )
    assert seen == ["planned"]
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert (report.weights, report.converted, report.copied) == (5, 4, 1)
    assert report.would[-1] == (
        "conv.weight: memory_desc((20, 6, 3, 3), 'f32', 'abcd') -> "
        "memory_desc((20, 6, 3, 3), 'f32', 'ABcd16b16a')"
    )
    done = reorder.convert(model, tmp_path / "out", map=_RULES, options=_SMALL)
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
    def fail(now: reorder.checkpoints.ConvertProgress) -> None:
        if now.stage == stage:
            raise error

    options = _SMALL._replace(verify=True)
    with pytest.raises(type(error)) as caught:
        reorder.convert(model, tmp_path / "out", map=_RULES, options=options, progress=fail)
    assert caught.value is error
    assert not (tmp_path / "out").exists()
    assert reorder.convert(
        model, tmp_path / "out", map=_RULES, options=options._replace(resume=True)
    )


def test_a_callback_may_change_the_working_folder(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "rules.txt").write_text("*.norm.weight: f32\n")
    monkeypatch.chdir(tmp_path)
    rules: list[str | Path] = [Path("rules.txt"), *_RULES]
    settings = _SMALL._replace(verify=True)
    for target in ("out", tmp_path / "wanted"):
        monkeypatch.chdir(tmp_path)
        leave = (lambda _: os.chdir(tmp_path / "elsewhere")) if target == "out" else None
        reorder.convert(model.name, target, map=rules, options=settings, progress=leave)
    assert contents(tmp_path / "out") == contents(tmp_path / "wanted")


def test_a_callback_may_convert_something_else_but_not_the_same(
    model: Path, tmp_path: Path
) -> None:
    left = ["other", "out"]

    def again(now: reorder.checkpoints.ConvertProgress) -> None:
        if now.stage == "converting" and left:
            reorder.convert(model, tmp_path / left.pop(0), map=_RULES, options=_SMALL)

    with pytest.raises(MemdescError, match="another process is writing into"):
        reorder.convert(model, tmp_path / "out", map=_RULES, options=_SMALL, progress=again)
    reorder.convert(model, tmp_path / "out", map=_RULES, options=_SMALL._replace(resume=True))
    assert contents(tmp_path / "out") == contents(tmp_path / "other")
