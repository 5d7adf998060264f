"""A folder with what 64-bit ARM needs to run the tests under user-mode emulation by QEMU.

It holds Debian's packages for arm64 and wheels for aarch64, unpacked and not configured, and the
kernels that were compiled there.
"""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

_REPOSITORY = Path(__file__).parents[2]
_SUITE, _PYTHON = "bookworm", "3.11"
_PROGRAMS = ("qemu-aarch64-static", "debootstrap", "dpkg-deb")
_DEBIAN_PACKAGES = "python3,libgomp1"
_TEST_PACKAGES = ("gguf>=0.19", "hypothesis", "jsonschema", "pytest", "pytest-xdist")
_WHEELS = ("2_28", "2_27", "2_26", "2_17")

_BINFMT = Path("/proc/sys/fs/binfmt_misc")
# the first bytes of a program for 64-bit ARM, and which bits of them count
_MAGIC = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\xb7\x00"
_MASK = b"\xff" * 7 + b"\x00" + b"\xff" * 8 + b"\xfe\xff\xff\xff"


class EmulationError(RuntimeError):
    """This machine cannot be given an emulated 64-bit ARM."""


def build(root: Path) -> None:
    """Make the folder, unless it is there; and let the system start its programs, if it can."""
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing:
        message = f"no {', '.join(missing)}: apt-get install qemu-user-static debootstrap"
        raise EmulationError(message)
    done = root / "done"
    if not done.exists():
        if os.geteuid():
            message = "debootstrap must run as root"
            raise EmulationError(message)
        shutil.rmtree(root, ignore_errors=True)
        _unpack_debian(root / "debian")
        # where this Python looks, whatever PYTHONPATH is
        _unpack_wheels(root / "debian/usr/lib/python3/dist-packages")
        done.touch()
    _register(root)


def python(root: Path) -> list[str]:
    """Return the command that starts the emulated Python."""
    return ["qemu-aarch64-static", str(root / "debian/usr/bin" / f"python{_PYTHON}")]


def variables(root: Path) -> dict[str, str]:
    """Return the environment of the emulated Python."""
    return {
        **os.environ,
        "QEMU_LD_PREFIX": str(root / "debian"),
        "PYTHONPATH": str(_REPOSITORY),
        "NUMBA_CACHE_DIR": str(root / "kernels"),
    }


def _unpack_debian(folder: Path) -> None:
    folder.mkdir(parents=True)
    options = ["--foreign", "--arch=arm64", "--variant=minbase", f"--include={_DEBIAN_PACKAGES}"]
    _run("debootstrap", *options, _SUITE, str(folder))
    # the first stage leaves most packages packed, and the second one would run their scripts
    for package in sorted(folder.glob("var/cache/apt/archives/*.deb")):
        _run("dpkg-deb", "-x", str(package), str(folder))


def _unpack_wheels(folder: Path) -> None:
    project = tomllib.loads((_REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    platforms = [f"--platform=manylinux_{version}_aarch64" for version in _WHEELS]
    options = [f"--target={folder}", "--only-binary=:all:", f"--python-version={_PYTHON}"]
    packages = [*project["project"]["dependencies"], *_TEST_PACKAGES]
    pip = [sys.executable, "-m", "pip", "install", "-q"]
    _run(*pip, *options, *platforms, "--platform=manylinux2014_aarch64", *packages)


def _run(*command: str) -> None:
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        last = "\n".join(f"{ran.stdout}\n{ran.stderr}".strip().splitlines()[-5:])
        message = f"{command[0]} ended with {ran.returncode}: {last}"
        raise EmulationError(message)


def _register(root: Path) -> None:
    """Make the system start programs for 64-bit ARM by QEMU, as tests start `sys.executable`."""
    emulator = shutil.which("qemu-aarch64-static") or ""
    entry = ":".join(["", "qemu-aarch64", "M", "", _hex(_MAGIC), _hex(_MASK), emulator, "OF"])
    try:
        if not (_BINFMT / "register").exists():
            _run("mount", "-t", "binfmt_misc", "binfmt_misc", str(_BINFMT))
        if not (_BINFMT / "qemu-aarch64").exists():
            (_BINFMT / "register").write_text(entry, encoding="ascii")
    except (EmulationError, OSError) as error:
        sys.stderr.write(f"tests that start Python will fail: no binfmt_misc here ({error})\n")
        sys.stderr.write(f"the emulated Python is {' '.join(python(root))}\n")


def _hex(content: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in content)
