from pathlib import Path

import pytest

from reorder.opencl.icds import Icd, find_icds


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, Path]:
    """Folders as a system and an environment have them, empty."""
    folders = {"system": tmp_path / "vendors", "prefix": tmp_path / "venv", "lib": tmp_path / "lib"}
    for folder in (
        folders["system"],
        folders["prefix"] / "etc" / "OpenCL" / "vendors",
        folders["prefix"] / "lib",
        folders["lib"],
    ):
        folder.mkdir(parents=True)
    return folders


def found(machine: dict[str, Path]) -> tuple[Icd, ...]:
    return find_icds(machine["system"], (machine["prefix"],), (machine["lib"],))


def test_files_of_the_system_are_taken_as_they_are(machine: dict[str, Path]) -> None:
    assert found(machine) == ()
    file = machine["system"] / "pocl.icd"
    file.write_text("libpocl.so.2\n")
    assert found(machine) == (Icd("libpocl.so.2", str(file)),)
    file.unlink()
    machine["system"].rmdir()
    assert found(machine) == ()


def test_a_library_that_moved_with_its_environment_is_found(machine: dict[str, Path]) -> None:
    file = machine["prefix"] / "etc" / "OpenCL" / "vendors" / "intel.icd"
    file.write_text("/opt/placeholder/lib/libintelocl.so\n")
    (icd,) = found(machine)
    assert icd.library is None
    assert "/opt/placeholder/lib/libintelocl.so, which does not exist" in icd.note
    library = machine["prefix"] / "lib" / "libintelocl.so"
    library.touch()
    assert found(machine) == (
        Icd(
            str(library),
            str(file),
            "it names /opt/placeholder/lib/libintelocl.so, which does not exist",
        ),
    )
    file.write_text(str(library))
    assert found(machine) == (Icd(str(library), str(file)),)
    file.write_text("libintelocl.so")
    assert found(machine) == (Icd("libintelocl.so", str(file)),)
    file.write_text("")
    assert found(machine) == (Icd(None, str(file), "the file is empty or cannot be read"),)


def test_a_library_without_a_file_is_found_once(machine: dict[str, Path]) -> None:
    library = machine["lib"] / "libnvidia-opencl.so.1"
    library.touch()
    assert found(machine) == (
        Icd(str(library), str(library), "no ICD file names libnvidia-opencl.so.1"),
    )
    file = machine["system"] / "nvidia.icd"
    file.write_text("libnvidia-opencl.so.1")
    assert found(machine) == (Icd("libnvidia-opencl.so.1", str(file)),)
