"""A machine that is described in the environment takes the place of the one that is here."""

import json
from pathlib import Path

import pytest

from reorder.assumed import PROCESSORS, AssumedMachine, read_machine
from tests.processors import runnable_processors
from tests.programs import run_python

_FACTS = """
import json
from reorder.cores import count_cores
from reorder.cpu.machine import this_machine
from reorder.cpu.target import processor, register_bits

machine = this_machine()
print(json.dumps([
    count_cores(), machine.threads, machine.cache_nbytes, machine.own_cache_nbytes,
    processor().name, register_bits(),
]))
"""


@pytest.mark.parametrize(
    ("text", "machine"),
    [
        ("", AssumedMachine()),
        ("cores=16", AssumedMachine(cores=16)),
        ("l2=512K", AssumedMachine(caches=(0, 512 << 10, 0))),
        ("cpu=host l3=1G l1=100", AssumedMachine(caches=(100, 0, 1 << 30))),
        (" cpu=nehalem  cores=1 ", AssumedMachine(cores=1, cpu="nehalem")),
    ],
)
def test_what_is_not_said_is_left_to_the_machine(text: str, machine: AssumedMachine) -> None:
    assert read_machine(text) == machine


@pytest.mark.parametrize("processor", runnable_processors())
def test_a_process_assumes_the_machine_in_its_environment(processor: str) -> None:
    said = f"cores=16 l2=1M l3=32M cpu={processor}"
    found = json.loads(run_python("-c", _FACTS, MEMDESC_MACHINE=said).stdout)
    bits = 512 if "avx512bw" in PROCESSORS[processor] else 256
    bits = bits if "avx2" in PROCESSORS[processor] else 128
    assert found == [16, 16, 28 << 20, 1 << 20, processor, bits]


def test_a_limit_of_threads_holds_on_an_assumed_machine() -> None:
    settings = {"MEMDESC_MACHINE": "cores=16", "NUMBA_NUM_THREADS": "3"}
    cores, threads, *_ = json.loads(run_python("-c", _FACTS, **settings).stdout)
    assert (cores, threads) == (16, 3)


_AS_NEHALEM = """
import platform
from llvmlite import binding
platform.machine = lambda: {machine!r}
features = binding.FeatureMap()
features["ssse3"] = True
binding.get_host_cpu_features = lambda: features
import memdesc
try:
    import reorder.cpu
except memdesc.MemdescError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("machine", "reason"),
    [
        ("x86_64", "has no avx2, fma, f16c; choose one of x86-64, nehalem"),
        ("aarch64", "is aarch64; leave cpu= out"),
    ],
)
def test_instructions_that_the_processor_lacks_are_not_assumed(
    machine: str, reason: str, tmp_path: Path
) -> None:
    # an empty folder for what LLVM says
    settings = {"MEMDESC_MACHINE": "cpu=haswell", "NUMBA_CACHE_DIR": str(tmp_path)}
    ran = run_python("-c", _AS_NEHALEM.format(machine=machine), **settings)
    said = "MEMDESC_MACHINE assumes cpu=haswell, but the processor here"
    assert ran.stdout == f"{said} {reason}\n"
