"""Conversions on a real Dask scheduler with worker processes."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reorder
from memdesc import MemdescError
from reorder.checkpoints import ConvertOptions, ConvertProgress, ConvertReport
from reorder.checkpoints.formats.entry import FileState
from reorder.checkpoints.moves.tasks import check_workers
from reorder.checkpoints.writer import partial_folder
from reorder.cli.main import main
from tests.checkpoints import model_folder, write_safetensors
from tests.clusters import Cluster, started
from tests.unit.reorder.checkpoints.convert.results import contents

pytestmark = pytest.mark.peers

distributed = pytest.importorskip("distributed", reason="distributed is not installed")
convert_module = pytest.importorskip("reorder.cli.convert")
connected = convert_module.connected

_OPTIONS = ConvertOptions(max_bytes=1 << 16)
_RULES = ("*.weight: AB16a16b", "*.bias: a, bf16")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with started(tmp_path_factory.mktemp("dask") / "cluster", 2) as found:
        yield found


def _checkpoint(path: Path) -> Path:
    rng = np.random.default_rng(0)
    tensors = {
        name: rng.standard_normal((rows, 256), np.float32).astype(np.float16)
        for name, rows in (("a.weight", 1000), ("b.weight", 900), ("c.other", 100))
    }
    write_safetensors(path, {**tensors, "a.bias": np.arange(77, dtype=np.float32)})
    return path


def _convert(source: Path, target: Path, client: Any = None, **given: Any) -> ConvertReport:
    progress = given.pop("progress", None)
    options = _OPTIONS._replace(**given)
    return reorder.convert(
        source, target, map=_RULES, options=options, progress=progress, client=client
    )


def test_a_cluster_writes_the_bytes_that_one_machine_writes(
    cluster: Cluster, tmp_path: Path
) -> None:
    source = _checkpoint(tmp_path / "in.safetensors")
    target, seen = tmp_path / "many.safetensors", list[ConvertProgress]()
    with connected(str(cluster.file)) as client:
        report = _convert(source, target, client, verify=True, progress=seen.append)
    _convert(source, tmp_path / "one.safetensors", threads=1)
    assert contents(target) == contents(tmp_path / "one.safetensors")
    assert report.files == 1
    written = max(now.done for now in seen if now.stage == "converting")
    assert 2 * written == seen[-1].done == seen[-1].total > 2_000_000
    assert not partial_folder(target).exists()


def test_the_command_converts_a_model_on_a_cluster(
    cluster: Cluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model_folder(tmp_path / "model")
    monkeypatch.chdir(tmp_path)  # relative paths are not those of the workers
    rule = "model.layers.*: awq -> gptq"
    assert main(["convert", "model", "one", "--map", rule]) == 0
    assert main(["convert", "model", "many", "--map", rule, "--dask", str(cluster.file)]) == 0
    assert contents(tmp_path / "many") == contents(tmp_path / "one")
    assert "model.safetensors" in " ".join(contents(tmp_path / "many"))
    capsys.readouterr()
    assert main(["convert", "model", "x", "--dask", str(cluster.file), "--threads", "2"]) == 2
    assert "--threads is for this machine" in capsys.readouterr().err
    assert main(["convert", "model", "x", "--map", "nothing: ab", "--dask", str(cluster.file)]) == 2
    assert not (tmp_path / "x").exists()


def test_a_worker_that_is_killed_half_way_costs_no_byte(tmp_path: Path) -> None:
    source, target = _checkpoint(tmp_path / "in.safetensors"), tmp_path / "many"
    with started(tmp_path / "cluster", 2) as cluster, connected(str(cluster.file)) as client:
        client.wait_for_workers(2, timeout=60)
        killed = list[subprocess.Popen[bytes]]()

        def step(now: ConvertProgress) -> None:
            if now.done > 0 and not killed:
                killed.append(cluster.processes[1])
                killed[0].kill()
                killed[0].wait()

        _convert(source, target, client, shard_bytes=60_000, progress=step)
        assert killed
        assert len(client.nthreads()) == 1
    _convert(source, tmp_path / "one", shard_bytes=60_000)
    assert contents(target) == contents(tmp_path / "one")


def test_an_error_of_a_worker_ends_the_conversion_and_it_is_resumed(
    cluster: Cluster, tmp_path: Path
) -> None:
    source = _checkpoint(tmp_path / "in.safetensors")
    target = tmp_path / "many.safetensors"
    before = source.stat()

    def step(now: ConvertProgress) -> None:
        if now.stage == "planned":
            os.truncate(source, 40_000)

    with connected(str(cluster.file)) as client:
        with pytest.raises(MemdescError, match=r"was shortened after|has changed"):
            _convert(source, target, client, progress=step)
        assert not target.exists()
        _checkpoint(source)
        os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))  # it is the one it was
        assert _convert(source, target, client, resume=True).files
        with pytest.raises(MemdescError, match="threads are those of this machine"):
            _convert(source, target, client, threads=2)
    _convert(source, tmp_path / "one.safetensors", threads=1)
    assert contents(target) == contents(tmp_path / "one.safetensors")
    with pytest.raises(MemdescError, match="is not a synchronous distributed"):
        _convert(source, tmp_path / "x.npz", "tcp://127.0.0.1:8786")


def test_what_is_not_a_cluster_is_refused_before_a_byte_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convert_module, "_CONNECTING", 1)
    source = _checkpoint(tmp_path / "in.safetensors")
    broken = tmp_path / "broken.json"
    before = sorted(tmp_path.rglob("*"))
    convert = ["convert", str(source), str(tmp_path / "out.npz"), "--dask"]
    for address in ("tcp://127.0.0.1:1", "nonsense", "ftp://a:b"):
        assert main([*convert, address]) == 2
        assert "there is no Dask scheduler at" in capsys.readouterr().err
    for text in ("", "{", "{}", "[1]", "[" * 100_000):
        broken.write_text(text)
        assert main([*convert, str(broken)]) == 2
        assert "there is no Dask scheduler at" in capsys.readouterr().err
    broken.unlink()
    assert main([*convert, str(broken)]) == 2
    assert "broken.json" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before
    with started(tmp_path / "cluster", 0) as empty:
        assert main([*convert, str(empty.file)]) == 2
        assert "is not a synchronous distributed.Client that has workers" in capsys.readouterr().err


def test_workers_that_do_not_see_a_file_are_named(cluster: Cluster, tmp_path: Path) -> None:
    here = tmp_path / "here.bin"
    here.write_bytes(b"abc")
    with connected(str(cluster.file)) as client:
        check_workers(client, {here: FileState.at(here)})
        with pytest.raises(MemdescError, match=r"worker tcp://.* does not see '.*here\.bin' as it"):
            check_workers(client, {here: FileState(4, 0)})
