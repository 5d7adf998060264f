"""Published tables: names of oneDNN 3.13, of OpenVINO 2019 to 2025, and notations with readings."""

import json
import re
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

# `readings.txt`: a notation, < if it is written, = if it is read alone, and the layout it is
_TEXT = (DATA.parent / "unit/memdesc/exchange/readings.txt").read_text(encoding="utf-8")
_ROWS = [line for line in _TEXT.splitlines() if line and not line.startswith("#")]
READINGS: list[tuple[str, str, str, str]] = re.findall(
    r"^(.+) (<?)([-=])> (\(.*)$", "\n".join(_ROWS), re.MULTILINE
)
assert len(READINGS) == len(_ROWS)
