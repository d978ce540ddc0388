"""Adds to each pin of a lock the SHA-256 of every file of that version, as the index has them.

    python .ci/pin_hashes.py requirements.lock

With hashes pip installs nothing else (`--require-hashes`): not what somebody put in the place of a
file later. Of every platform, so that one lock serves all of them. The index is pip's own
(PIP_INDEX_URL), and its name goes nowhere.
"""

import html
import os
import re
import sys
import urllib.parse
import urllib.request
from pathlib import Path

_INDEX = "https://pypi.org/simple"
_TIMEOUT_SECONDS = 60
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([A-Za-z0-9.+!]+)", re.MULTILINE)
_LINK = re.compile(r'href="([^"#]+)#sha256=([0-9a-f]{64})')
_ENDINGS = (".tar.gz", ".zip", ".tar.bz2")


def files_of(name: str) -> list[tuple[str, str]]:
    """File names and hashes of a project."""
    index = os.environ.get("PIP_INDEX_URL", _INDEX).rstrip("/")
    project = re.sub(r"[-_.]+", "-", name).lower()
    request = urllib.request.Request(f"{index}/{project}/", headers={"Accept": "text/html"})
    with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:
        page = answer.read().decode()
    return [
        (urllib.parse.unquote(html.unescape(link)).rpartition("/")[2], sha256)
        for link, sha256 in _LINK.findall(page)
    ]


def version_of(file: str) -> str:
    """The version that a file's name states; empty for other kinds of files."""
    if file.endswith(".whl"):
        return file.split("-")[1]
    for ending in _ENDINGS:
        if file.endswith(ending):
            return file.removesuffix(ending).rpartition("-")[2]
    return ""


def pinned(name: str, version: str) -> str:
    """A pin with its hashes."""
    hashes = sorted({sha256 for file, sha256 in files_of(name) if version_of(file) == version})
    if not hashes:
        sys.exit(f"the index has no file of {name} {version} with a SHA-256")
    return " \\\n    ".join([f"{name}=={version}", *(f"--hash=sha256:{one}" for one in hashes)])


def main(path: Path) -> None:
    """Write the lock anew."""
    text = path.read_text()
    head = [line for line in text.splitlines() if line.startswith("#")]
    pins = [pinned(name, version) for name, version in _PIN.findall(text)]
    path.write_text("\n".join([*head, *pins]) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
