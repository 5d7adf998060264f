"""The published tables in tests/data: names of oneDNN 3.13, and of OpenVINO 2019 to 2025."""

import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"


def _load(name: str) -> Any:
    return json.loads((DATA / name).read_text(encoding="utf-8"))


# canonical: 873 names in the order of the enum; aliases: 798 names, each with its canonical one
ONEDNN_CANONICAL: list[str] = _load("onednn_tags.json")["canonical"]
ONEDNN_ALIASES: dict[str, str] = _load("onednn_tags.json")["aliases"]

# rows with the digits, outermost in memory first, as [letters, step, extent or None]; None for
# names without digits
CLDNN: dict[str, dict[str, Any]] = {row["name"]: row for row in _load("cldnn_formats.json")}
