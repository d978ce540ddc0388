"""What the configuration says reaches the parts that it is about."""

from __future__ import annotations

from pathlib import Path

from keepfast.apache import load_config
from keepfast.server import ServerOptions, options_of


def options(folder: Path, *lines: str) -> ServerOptions:
    file = folder / "zoo.cfg"
    file.write_text("\n".join([f"dataDir={folder}", "clientPort=2181", *lines]) + "\n")
    return options_of(load_config(str(file)))


def test_log_size_limit__is_where_a_log_file_is_rolled(tmp_path: Path) -> None:
    unlimited = options(tmp_path).store.segment_bytes
    assert options(tmp_path, "txnLogSizeLimitInKb=8").store.segment_bytes == 8 << 10
    assert options(tmp_path, "txnLogSizeLimitInKb=0").store.segment_bytes == unlimited
