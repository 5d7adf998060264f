from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.opencl.runtimes import Runtime

DOCS = Path(__file__).parents[2] / "docs"


def test_the_code_of_the_page_runs(first: Runtime) -> None:
    del first  # skips where no runtime is
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / "opencl.md").read_text(), re.DOTALL)
    exec(compile(code, "opencl.md", "exec"), {})  # noqa: S102 - that is the test
