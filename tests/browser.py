"""Debian's Chromium, driven through ChromeDriver by its HTTP protocol (W3C WebDriver)."""

import contextlib
import json
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)

# A page is complete, and a size is accepted, before the window has laid the page out for the size.
# So wait until the window has the size and three frames in a row show a page of the same extent.
_SETTLE = """
    const [width, done] = arguments;
    const root = document.documentElement;
    let last, equal = 0;
    const look = () => {
        const extent = [root.clientWidth, root.clientHeight, root.scrollWidth, root.scrollHeight];
        const now = extent.join();
        equal = now === last && (width === null || innerWidth === width) ? equal + 1 : 0;
        last = now;
        if (equal < 3) requestAnimationFrame(look); else done();
    };
    look();
"""


def missing() -> str:
    """Return what of the browser is not installed, nothing if all is."""
    return ", ".join(
        program for program in ("chromium", "chromedriver") if shutil.which(program) is None
    )


class Browser:
    """One window."""

    def __init__(self, root: str, session: str) -> None:
        self._at = f"{root}/session/{session}"
        self._width: int | None = None

    def _ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        return _ask(f"{self._at}/{path}", body)

    def open(self, url: str) -> None:
        """Load a page, and wait until it is complete and laid out."""
        self._ask("url", {"url": url})
        self._settle()

    def _settle(self) -> None:
        self._ask("execute/async", {"script": _SETTLE, "args": [self._width]})

    def run(self, script: str) -> Any:
        """Return the value of a script."""
        return self._ask("execute/sync", {"script": script, "args": []})

    def complaints(self) -> list[str]:
        """Return what the console said since the last time: warnings and errors."""
        return [
            entry["message"]
            for entry in self._ask("se/log", {"type": "browser"})
            if entry["level"] in {"SEVERE", "WARNING"}
        ]

    def resize(self, width: int, height: int) -> None:
        """Emulate a window of a size in CSS pixels."""
        params = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._ask(
            "goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": params}
        )
        self._width = width
        self._settle()

    def prefer(self, scheme: str) -> None:
        """Emulate a reader who prefers the colour scheme `light` or `dark`."""
        params = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self._ask("goog/cdp/execute", {"cmd": "Emulation.setEmulatedMedia", "params": params})
        self._settle()


@contextlib.contextmanager
def opened() -> Iterator[Browser]:
    """Start a browser with a fresh profile; it ends with the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    root = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        driver = subprocess.Popen(
            ["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            _wait(root)
            options = {"args": [*_FLAGS, f"--user-data-dir={profile}", "--window-size=1600,1200"]}
            wanted = {
                "browserName": "chrome",
                "goog:chromeOptions": options,
                "goog:loggingPrefs": {"browser": "ALL"},
            }
            session = _ask(f"{root}/session", {"capabilities": {"alwaysMatch": wanted}})[
                "sessionId"
            ]
            try:
                yield Browser(root, session)
            finally:
                _ask(f"{root}/session/{session}", method="DELETE")
        finally:
            driver.terminate()
            driver.wait()


def _wait(root: str) -> None:
    for _ in range(300):
        with contextlib.suppress(URLError, ConnectionError):
            if _ask(f"{root}/status")["ready"]:
                return
        time.sleep(0.1)
    msg = "chromedriver did not start within 30 seconds"
    raise TimeoutError(msg)


def _ask(url: str, body: dict[str, Any] | None = None, method: str | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = Request(url, data, headers, method=method)  # noqa: S310 - chromedriver, on this host
    with urlopen(request, timeout=120) as answer:  # noqa: S310 - likewise
        return json.load(answer)["value"]
