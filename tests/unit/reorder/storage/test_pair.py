"""An array and the descriptor beside it: which belong together, whatever happened to one."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import reorder
from memdesc import MemdescError, image_desc, to_json
from reorder.storage.files import load, save, save_image, sidecar
from tests.files import temporaries

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def _tensor(tag: str, value: float = 1.0) -> reorder.Memory:
    """Return a tensor whose bytes and whose shape in the file are the same for all plain tags."""
    return reorder.reorder(np.full((4, 4, 4, 4), value, np.float32), tag)


def test_the_descriptor_of_another_tensor_is_refused_whatever_its_shape_and_values(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.npy"
    save(path, _tensor("abcd"))
    older = path.read_bytes(), sidecar(path).read_bytes()
    save(path, _tensor("dcba"))
    newer = path.read_bytes(), sidecar(path).read_bytes()
    # killed between the two: in either order, and what was there before is still known
    path.write_bytes(older[0])
    again = load(path)
    assert isinstance(again, reorder.Memory)
    assert again.desc == _tensor("abcd").desc
    path.write_bytes(newer[0])
    sidecar(path).write_bytes(older[1])
    with pytest.raises(
        MemdescError,
        match=r"x\.npy' is not the array that '.*json' describes: it has 1152 bytes and "
        r"generation 2, not 1152 and 1\. One of the two was replaced without the other: save the "
        r"tensor again; or, if the array is newer, delete '.*json', or only its key 'array' where "
        "the layout has stayed",
    ):
        load(path)
    sidecar(path).unlink()
    assert isinstance(load(path), np.ndarray)


def test_an_array_of_equal_shape_written_over_a_described_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    save(path, _tensor("dcba"))
    np.save(path, np.load(path))
    with pytest.raises(MemdescError, match="generation 0, not 1152 and 1"):
        load(path)
    # as the message says
    fields = json.loads(sidecar(path).read_text())
    del fields["array"]
    sidecar(path).write_text(json.dumps(fields))
    again = load(path)
    assert isinstance(again, reorder.Memory)
    assert again.desc == _tensor("dcba").desc


def test_a_changed_element_is_refused_where_the_digest_looks_and_by_verify_everywhere(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.npy"
    for memory, at in ((_tensor("abcd"), 500), (_large(), -1), (_large(), 2_000_000)):
        save(path, memory)
        load(path, verify=True)
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)
        if at != 2_000_000:
            with pytest.raises(MemdescError, match="describes: its header or its data differ"):
                load(path)
            continue
        load(path)
        with pytest.raises(MemdescError, match="is damaged: the checksum of its data is 0x"):
            load(path, verify=True)


def _large() -> reorder.Memory:
    return reorder.reorder(np.arange(10**6, dtype=np.float32), "a")


def test_files_of_earlier_versions_are_read_and_may_be_written_over(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    _save_as_earlier_versions(path, _tensor("dcba"))
    again = load(path)
    assert isinstance(again, reorder.Memory)
    assert again.desc == _tensor("dcba").desc
    with pytest.raises(MemdescError, match="cannot be verified: no descriptor beside it has a che"):
        load(path, verify=True)
    older = path.read_bytes()
    save(path, _tensor("abcd", 2.0))
    newer = path.read_bytes()
    path.write_bytes(older)
    again = load(path)
    assert isinstance(again, reorder.Memory)
    assert np.array_equal(again.numpy(), _tensor("dcba").numpy())
    assert again.desc == _tensor("dcba").desc
    path.write_bytes(newer)
    load(path, verify=True)


def _save_as_earlier_versions(path: Path, memory: reorder.Memory) -> None:
    np.save(path, memory.numpy().T)
    sidecar(path).write_text(f"{to_json(memory.desc)}\n")


def test_an_array_without_descriptor_stays_one_until_a_tensor_is_in_its_place(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.npy"
    x = np.arange(256, dtype=np.float32).reshape(4, 4, 4, 4)
    np.save(path, x)
    older = path.read_bytes()
    with pytest.raises(MemdescError, match="cannot be verified"):
        load(path, verify=True)
    save(path, _tensor("dcba"))
    path.write_bytes(older)
    again = load(path)
    assert isinstance(again, np.ndarray)
    assert np.array_equal(again, x)


def test_a_tensor_that_was_killed_once_may_be_saved_again_and_again(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    arrays = []
    for k in range(40):
        save(path, _tensor(("abcd", "dcba")[k % 2], k))
        arrays.append(path.read_bytes())
        for _ in range(2):
            load(path, verify=True)
        if k % 3 == 2:
            path.write_bytes(arrays[-2])  # killed between the two
            again = load(path)
            assert isinstance(again, reorder.Memory)
            assert again.desc == _tensor(("dcba", "abcd")[k % 2]).desc
    assert len(sidecar(path).read_bytes()) < 2000


def test_the_same_tensor_saved_first_makes_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.npy", "b.npy"):
        save(tmp_path / name, _tensor("dcba"))
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()
    assert sidecar(tmp_path / "a.npy").read_bytes() == sidecar(tmp_path / "b.npy").read_bytes()


def test_a_pair_is_copied_and_moved_as_any_files(tmp_path: Path) -> None:
    save(tmp_path / "x.npy", _tensor("dcba"))
    for of in (lambda path: path, sidecar):
        of(tmp_path / "y.npy").write_bytes(of(tmp_path / "x.npy").read_bytes())
    assert isinstance(load(tmp_path / "y.npy", verify=True), reorder.Memory)


def test_an_image_is_tied_to_its_pixels(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    image = image_desc((1, 6, 2, 3), "f16", "in_out_channel")
    pixels = np.arange(image.nbytes // 2, dtype=np.float16)
    save_image(path, pixels, image)
    again = load(path, verify=True)
    assert isinstance(again, reorder.Memory)
    assert again.desc == image.desc
    np.save(path, np.load(path))
    with pytest.raises(MemdescError, match="generation 0"):
        load(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda fields: {"array": fields["array"]},
        lambda fields: fields | {"array": 3},
        lambda fields: fields | {"before": 3},
        lambda fields: fields | {"before": {"array": 3}},
        lambda fields: fields | {"image": {}},
        lambda fields: fields | {"image": "\ud800"},
        lambda _: [1],
    ],
)
def test_a_descriptor_of_another_form_is_refused(
    tmp_path: Path, change: Callable[[Any], Any]
) -> None:
    path = tmp_path / "x.npy"
    save(path, _tensor("dcba"))
    sidecar(path).write_text(json.dumps(change(json.loads(sidecar(path).read_text()))))
    with pytest.raises(MemdescError, match=r"x\.npy\.json'"):
        load(path)
    # what is there is not read, and is no reason not to write
    save(path, _tensor("abcd"))
    load(path, verify=True)


def test_a_descriptor_that_is_large_or_deep_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    save(path, _tensor("dcba"))
    for text in ("[" * 100_000, '{"schema":' * 5000, "9" * 5000):
        sidecar(path).write_text(text)
        with pytest.raises(MemdescError, match=r"x\.npy\.json': no descriptor"):
            load(path)
    with sidecar(path).open("wb") as file:
        file.truncate(2**40)  # takes no place on disk
    with pytest.raises(MemdescError, match=r"x\.npy\.json' has more than 1048576 bytes"):
        load(path)


def test_a_name_as_long_as_names_may_be_is_read(tmp_path: Path) -> None:
    path = tmp_path / f"{'x' * 251}.npy"
    np.save(path, np.arange(3))
    assert isinstance(load(path), np.ndarray)
    with pytest.raises(MemdescError, match="cannot be written: File name too long"):
        save(path, _tensor("abcd"))
    assert not temporaries(tmp_path)


def test_pairs_that_another_thread_writes_meanwhile_are_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    tensors = [_tensor("abcd", 1.0), _tensor("dcba", 2.0)]
    save(path, tensors[0])

    def write() -> None:
        for k in range(50):
            save(path, tensors[k % 2])

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        while not writing.done():
            found = load(path)
            assert isinstance(found, reorder.Memory)
            first = float(found.numpy()[0, 0, 0, 0])
            assert found.desc == tensors[int(first) - 1].desc
            assert (found.numpy() == first).all()
        writing.result()
