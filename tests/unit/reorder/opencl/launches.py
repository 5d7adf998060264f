"""Launches of a reorder without a device, and what must hold for each."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from reorder.opencl.kernel.launch import DeviceTraits, kernel_source
from reorder.opencl.kernel.placement import ImageShape
from reorder.opencl.kernel.profile import GPU, Profile
from reorder.opencl.kernel.transfers import OperandSpec, plan_transfers

if TYPE_CHECKING:
    from memdesc import ImageDesc
    from reorder.opencl.kernel.launch import Launch

__all__ = ["check_source", "constant_operands", "image_spec", "launches"]

# an operand of `&&` or `||` that is one name or number, behind what may stand before an operand
_OPERAND = re.compile(
    r"(?:(?:&&|\|\|) |\(|[^<>=!]= )(\w+)(?= (?:&&|\|\|))"
    r"|(?:&&|\|\|) (\w+)(?= (?:&&|\|\||\?)|[);])"
)
_CONSTANT = re.compile(r"\bconst \w+ (\w+) = \d+u?;")


def launches(
    src: OperandSpec, dst: OperandSpec, max_work_items: int = 1024, profile: Profile = GPU
) -> list[Launch]:
    return [
        launch
        for transfer in plan_transfers(
            src, dst, DeviceTraits(max_work_items, profile=profile), is_aligned=True
        )
        for launch in transfer.launches
    ]


def image_spec(image: ImageDesc) -> OperandSpec:
    return OperandSpec(image.desc, ImageShape.of(image))


def check_source(launch: Launch) -> None:
    source = kernel_source(launch.pattern)
    names = list(launch.pattern.params)
    assert len(names) == len(set(names)) == len(launch.params)
    # every parameter that is used is passed, and every one that is passed is declared
    assert set(re.findall(r"\bp\.(\w+)", source)) <= set(names)
    head = source[: source.index("params_t;")]
    struct = head[head.index("{") : head.index("}")]
    assert re.findall(r"\w+", struct.replace("index_t ", "")) == names
    assert source.count("{") == source.count("}")
    assert source.count("(") == source.count(")")
    assert not constant_operands(source), source
    limit = 2**63 if launch.pattern.is_wide else 2**31
    assert all(-limit <= value < limit for value in launch.params)
    assert all(
        0 < count <= (2**31 - 1 if axis == 0 else 65535) for axis, count in enumerate(launch.groups)
    )


def constant_operands(source: str) -> set[str]:
    """Return the constants that are operands of logical operators, which NVIDIA refuses."""
    constants = set(_CONSTANT.findall(source))
    operands = {name for match in _OPERAND.findall(source) for name in match if name}
    return {name for name in operands if name in constants or name.isdigit()}
