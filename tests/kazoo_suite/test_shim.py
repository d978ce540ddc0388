"""The program that takes Java's place in kazoo's test harness; the suite itself is `make kazoo`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from kazoo.client import KazooClient

from tests.apache import free_ports, wait_until
from tests.apache.words import ask
from tests.kazoo_suite.run import _variables, _write_java

_SUPER = "-Dzookeeper.DigestAuthenticationProvider.superDigest=super:D/InIHSb7yEEbrWz8b9l71RjZJU="


def test_java_of_the_suite__runs_a_server_with_the_harness_arguments(tmp_path: Path) -> None:
    port, admin_port = free_ports(2)
    file = tmp_path / "zoo.cfg"
    file.write_text(
        f"dataDir={tmp_path / 'data'}\nclientPort={port}\nclientPortAddress=127.0.0.1\n"
        f"admin.serverPort={admin_port}\n4lw.commands.whitelist=*\n"
    )
    _write_java(tmp_path / "bin")
    variables = _variables(tmp_path / "bin", 1)
    assert variables["PATH"].startswith(f"{tmp_path / 'bin'}{os.pathsep}")
    main_class = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    process = subprocess.Popen(
        ["java", "-cp", "none", "-Dreadonlymode.enabled=true", _SUPER, main_class, str(file)],
        env=variables,
        cwd=tmp_path,
    )
    try:
        wait_until(lambda: _answers(port), "the server", timeout=30)
        client = KazooClient(f"127.0.0.1:{port}", auth_data=[("digest", "super:test")])
        client.start()
        # Only the superuser of the -D option may do this.
        client.set_acls("/zookeeper/config", client.get_acls("/")[0])
        client.stop()
        client.close()
    finally:
        process.terminate()
        assert process.wait(timeout=30) == 0
    assert (tmp_path / "zookeeper.log").exists()


def _answers(port: int) -> bool:
    try:
        return ask(port, "ruok") == "imok"
    except OSError:
        return False
