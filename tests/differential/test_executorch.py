"""The extents of ExecuTorch's textures, by its own function.

`pip install --no-deps executorch==1.5.1`. The module of the function imports torch and much else,
so the function is taken alone, with the enum that it compares with.
"""

import ast
import importlib.util
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from memdesc import image_desc

pytestmark = pytest.mark.peers

_TEXTURES = ("WIDTH", "HEIGHT", "CHANNELS")


def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look it up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def vulkan() -> dict[str, Any]:
    """Return the function, and the enum of memory layouts."""
    found = importlib.util.find_spec("executorch")
    if found is None or not found.submodule_search_locations:
        pytest.skip("executorch is not installed (pip install --no-deps executorch)")
    folder = Path(next(iter(found.submodule_search_locations)), "backends", "vulkan")
    schema = _module(folder / "serialization" / "vulkan_graph_schema.py")
    tree = ast.parse((folder / "utils.py").read_text("utf-8"))
    (function,) = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name == "required_image_extents"
    ]
    function.args.args[0].annotation = function.args.args[1].annotation = function.returns = None
    names: dict[str, Any] = {"VkMemoryLayout": schema.VkMemoryLayout}
    exec(compile(ast.Module([function], []), "utils.py", "exec"), names)
    return names


@pytest.mark.parametrize("axis", _TEXTURES)
def test_textures_have_the_extents_that_the_exporter_computes(
    vulkan: dict[str, Any], axis: str
) -> None:
    layout = getattr(vulkan["VkMemoryLayout"], f"TENSOR_{axis}_PACKED")
    pick = random.Random(axis)
    for _ in range(100):
        dims = tuple(pick.randint(1, 20) for _ in range(4))
        image = image_desc(dims, "f16", f"executorch_{axis.lower()}_packed")
        theirs = vulkan["required_image_extents"](dims, layout)
        assert (image.width, image.height, image.depth) == tuple(theirs)
