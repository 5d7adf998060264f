"""Records as torch uses them: products with weights that were repacked here."""

import numpy as np
import pytest

import reorder
from memdesc.record import record_desc
from tests.records import plain_scales, random_record

pytestmark = pytest.mark.peers

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

# what torch calls the instructions that it uses -> the record
_CPU_NAMES = {
    "AVX512": "torch_int4_cpu",
    "AVX2": "torch_int4_cpu_avx2",
    "DEFAULT": "torch_int4_cpu_default",
}
_INPUTS, _OUTPUTS, _GROUP = 256, 128, 64


@pytest.mark.parametrize("source", ["gptq", "awq"])
def test_torch_multiplies_with_what_was_repacked_from_gpu_formats(source: str) -> None:
    rng = np.random.default_rng(0)
    desc = record_desc((_INPUTS, _OUTPUTS), source, group=_GROUP)
    record = plain_scales(random_record(desc, rng), rng)
    name = _CPU_NAMES[torch.backends.cpu.get_cpu_capability()]
    packed = reorder.records.repack(record, name, scales="f32")
    numbers = reorder.dequantize(record).numpy()
    assert np.array_equal(reorder.dequantize(packed).numpy().T, numbers)

    # torch's own way: codes of 32 bits, packed by its operator
    pack = torch.ops.aten._convert_weight_to_int4pack_for_cpu  # noqa: SLF001 - the operator's name
    multiply = torch.ops.aten._weight_int4pack_mm_for_cpu  # noqa: SLF001 - likewise
    theirs = pack(torch.from_numpy(packed.field("weight").astype(np.int32)), 1)
    ours = torch.from_numpy(packed.tensors["weight"]).view(theirs.shape)
    assert torch.equal(ours, theirs)

    pairs = torch.from_numpy(packed.tensors["scales_and_zeros"].view(np.float32))
    pairs = pairs.view(_INPUTS // _GROUP, _OUTPUTS, 2)
    x = torch.from_numpy(rng.standard_normal((4, _INPUTS), np.float32))
    product = multiply(x, ours, _GROUP, pairs)
    assert torch.equal(product, multiply(x, theirs, _GROUP, pairs))
    expected = x.double() @ torch.from_numpy(numbers).double()
    assert torch.allclose(product.double(), expected, rtol=1e-4, atol=1e-3)
