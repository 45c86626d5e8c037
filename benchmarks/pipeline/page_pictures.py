"""Picture of a page that a service serves, as a browser shows it after some seconds: for pages that never stop loading.

    python -m benchmarks.pipeline.page_pictures http://127.0.0.1:8787/status dashboard.webp
    python -m benchmarks.pipeline.page_pictures http://127.0.0.1:4200/runs/flow-run/ID flow-run.webp --seconds 20

Needed is chromium. The dashboard of Dask gets its figures through a socket, and Prefect's page asks its server, after
the page itself is there: its own protocol lets the browser wait.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import subprocess
import tempfile
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

from tornado.websocket import websocket_connect

PORT = 9333
"""Port on loopback at which the browser takes orders."""


def find_tab() -> str:
    """Address of the socket of the browser's first tab."""
    for _ in range(120):
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{PORT}/json") as said:
            for tab in json.load(said):
                if tab["type"] == "page":
                    return str(tab["webSocketDebuggerUrl"])
        time.sleep(0.5)
    raise SystemExit("chromium does not answer")


async def take(url: str, seconds: float) -> bytes:
    """Open a page, wait, and give its picture."""
    socket = await websocket_connect(find_tab(), max_message_size=1 << 28)

    async def call(number: int, method: str, **options: Any) -> dict[str, Any]:
        await socket.write_message(json.dumps({"id": number, "method": method, "params": options}))
        while True:
            answer = json.loads(await socket.read_message() or "{}")
            if answer.get("id") == number:
                return dict(answer.get("result", {}))

    await call(1, "Page.navigate", url=url)
    await asyncio.sleep(seconds)
    picture = await call(2, "Page.captureScreenshot", format="webp", quality=60)
    return base64.b64decode(picture["data"])


def main() -> None:
    """Take one picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("file", type=Path)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        words = ["--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1100,720"]
        browser = subprocess.Popen(
            [
                "chromium",
                *words,
                f"--remote-debugging-port={PORT}",
                f"--user-data-dir={folder}",
                "about:blank",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            options.file.write_bytes(asyncio.run(take(options.url, options.seconds)))
        finally:
            browser.kill()
            browser.wait()


if __name__ == "__main__":
    main()
