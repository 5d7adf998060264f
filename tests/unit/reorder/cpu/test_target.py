"""What kernels may use, on this processor and where another one is named."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from llvmlite import binding

from reorder.assumed import PROCESSORS, VARIABLE
from reorder.cpu import target
from reorder.system import is_arm


@pytest.fixture(autouse=True)
def _asked_again(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(VARIABLE, raising=False)
    facts = target.processor, target.has_feature, target.register_bits, target.instructions
    for fact in facts:
        fact.cache_clear()
    yield
    for fact in facts:
        fact.cache_clear()


@pytest.mark.parametrize(
    ("processor", "bits"),
    [("x86-64", 128), ("nehalem", 128), ("haswell", 256), ("icelake-server", 512)],
)
def test_registers_are_those_of_the_features_that_kernels_are_compiled_for(
    processor: str, bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = PROCESSORS[processor]
    named = target.Processor(processor, ",".join(f"+{name}" for name in features))
    monkeypatch.setattr(target, "processor", lambda: named)
    assert target.register_bits() == bits
    masks, permutes = "avx512bw" in features, "avx512vbmi" in features
    assert target.instructions() == (masks, permutes, is_arm() or "fma" in features)
    assert target.has_masks() == masks
    assert target.has_feature("ssse3") == ("ssse3" in features)


def test_without_a_variable_kernels_have_the_features_of_the_machine() -> None:
    host = binding.get_host_cpu_features()
    assert all(target.has_feature(name) == bool(host.get(name)) for name in ("avx2", "avx512bw"))


def test_llvm_is_asked_once_for_each_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(target, "_PROCESSORS", tmp_path / "cpuinfo")
    asked: list[str] = []
    ask = target._ask_llvm  # noqa: SLF001 - whether it is called

    def counted() -> target.Processor:
        asked.append(said)
        return ask()

    monkeypatch.setattr(target, "_ask_llvm", counted)
    one = "model\t\t: 207\ncpu MHz\t\t: 2100.000\nflags\t\t: fpu sse2 avx\n"
    faster, other = one.replace("2100", "3500"), one.replace(" avx", " avx avx2")
    arm, unclear = "CPU part\t: 0xd40\nFeatures\t: asimd\n", one.replace("flags", "bugs")
    texts = one, f"{faster}\n{other}", other, arm, other, unclear, unclear
    found = []
    for said in texts:
        (tmp_path / "cpuinfo").write_text(said)
        found.append(target._host())  # noqa: SLF001 - without what was asked before
    (tmp_path / "cpuinfo").unlink()
    said = "no file"
    found.append(target._host())  # noqa: SLF001 - likewise
    # one file has the last processor
    assert asked == [one, other, arm, other, unclear, unclear, "no file"]
    assert len({*found}) == 1
