"""Starting the JVM of Spark, without PySpark: it starts while Python imports what it needs.

The protocol is PySpark's own: ``spark-submit pyspark-shell`` opens a gateway, writes its port and a
secret into a file, and ends when its standard input does.  PySpark then takes the running gateway
from its environment, as it does below spark-submit.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from keepfast.pipeline.engine.failures import JobFailed, cause_in_log
from keepfast.pipeline.engine.java import RECORD_VARIABLE

_LOOK_SECONDS = 0.02


@dataclass(slots=True)
class JvmLaunch:
    """A JVM on its way; it lives as long as this object's process does."""

    process: subprocess.Popen[bytes]
    directory: str
    log_path: str

    def wait(self) -> dict[str, str]:
        """The variables by which PySpark finds the gateway; raises JobFailed."""
        file = Path(self.directory, "gateway")
        try:
            while not file.exists():
                if self.process.poll() is not None:
                    raise JobFailed(cause_in_log(self.log_path), self.log_path)
                time.sleep(_LOOK_SECONDS)
            port, size = struct.unpack_from(">ii", raw := file.read_bytes())
            secret = raw[8 : 8 + size].decode()
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)
        return {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}


def launch_jvm(
    home: str,
    settings: Mapping[str, str],
    environment: Mapping[str, str],
    log_path: str,
    recordings: Path | None = None,
) -> JvmLaunch:
    """Start the JVM of the Spark at `home`; all that it and its workers print goes to the log.

    `recordings` is a directory in which the command is kept that Spark's scripts make of the
    settings: they are three shells and a JVM of their own. For an installation without settings of
    its own, of which they would depend too.
    """
    directory = tempfile.mkdtemp(prefix="keepfast-gateway-")
    command = [os.path.join(home, "bin", "spark-submit")]
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    command.append("pyspark-shell")
    extra = {}
    if recordings is not None:
        recorded = recordings / f"command-{_key(command, environment)}"
        try:
            command = recorded.read_text(encoding="utf-8").split("\0")[:-1]
            # What the scripts set beside the command.
            extra = {"PYTHONHASHSEED": "0"}
        except OSError:
            extra = {RECORD_VARIABLE: str(recorded)}
    variables = {
        **os.environ,
        **environment,
        **extra,
        "SPARK_CONNECT_MODE": "0",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": os.path.join(directory, "gateway"),
    }
    log = os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=variables,
            # Ctrl-C is ours to take: the JVM ends when we do.
            process_group=0,
        )
    except OSError as error:
        shutil.rmtree(directory, ignore_errors=True)
        raise JobFailed(f"{command[0]} cannot be run: {error.strerror}", None) from error
    finally:
        os.close(log)
    return JvmLaunch(process, directory, log_path)


def _key(command: list[str], environment: Mapping[str, str]) -> str:
    of_spark = {name: value for name, value in os.environ.items() if name.startswith("SPARK_")}
    text = "\0".join(
        [*command, *(f"{k}={v}" for k, v in sorted({**of_spark, **environment}.items()))]
    )
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]
