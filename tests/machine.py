"""A pytest plugin: all tests assume one machine, and so do the processes that they start.

No verdict may depend on the machine that runs the tests. Its caches, cores and instructions are
therefore those below, unless `MEMDESC_MACHINE` in the environment of pytest says others, in part or
all. Only the instructions are limited by what the machine has: the newest processor that it can
stand for. `cpu=host` takes all that it has.
"""

import os

import pytest

from reorder.assumed import VARIABLE
from tests.processors import runnable_processors

_DEFAULT = {"cores": "2", "l1": "48K", "l2": "2M", "l3": "32M"}
# what oneDNN may use, as it calls this, where the processor is older than those with VNNI
_OF_ONEDNN = {
    "x86-64": "SSE41",
    "nehalem": "SSE41",
    "haswell": "AVX2",
    "skylake-avx512": "AVX512_CORE",
}


def _assume() -> str:
    """Set the variable before anything is compiled; worker processes find it complete."""
    processors = runnable_processors()
    newest = {"cpu": processors[-1]} if processors else {}
    given = dict(word.split("=", 1) for word in os.environ.get(VARIABLE, "").split())
    machine = _DEFAULT | newest | given
    os.environ[VARIABLE] = " ".join(f"{name}={value}" for name, value in machine.items())
    if (limit := _OF_ONEDNN.get(machine.get("cpu", ""))) is not None:
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", limit)
    return os.environ[VARIABLE]


_ASSUMED = _assume()


def assuming(**words: str) -> dict[str, str]:
    """Return the variable for a process whose machine differs in some words from that of all tests.

    >>> assuming(cores="4")["MEMDESC_MACHINE"].split()[0]
    'cores=4'
    """
    machine = dict(word.split("=", 1) for word in _ASSUMED.split()) | words
    return {VARIABLE: " ".join(f"{name}={value}" for name, value in machine.items())}


def pytest_report_header() -> str:
    """Say which machine is assumed."""
    return f"{VARIABLE}={_ASSUMED}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say it where something failed, so that the failure can be repeated elsewhere."""
    if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
        terminalreporter.write_line(f'assumed machine: {VARIABLE}="{_ASSUMED}"')
