"""Every work on a real server of ours; the command; and the same works in zkload."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from keepfast.bench import WORKS, BenchFailed, Load, run_work
from keepfast.cli.app import run
from keepfast.client import Client, ServerAddress, parse_target
from keepfast.testing import Server

ZKLOAD = Path(__file__).resolve().parents[2] / "benchmarks" / "zkload.c"
# Sessions at once: few, as other tests run beside.
CONNECTIONS = {"connect": 4, "watchers": 10}


@pytest.fixture(scope="module")
def server() -> object:
    with Server() as running:
        yield running


@pytest.fixture(scope="module")
def address(server: Server) -> str:
    return server.hosts


@pytest.mark.parametrize("name", list(WORKS))
def test_work_is_measured_and_leaves_nothing(name: str, address: str) -> None:
    load = Load(
        parse_target(address).addresses,
        seconds=0.1,
        connections=CONNECTIONS.get(name, 2),
        in_flight=4,
        keys=20,
        children=300,
    )
    measured = run_work(WORKS[name], load)
    assert measured.latencies.count > 0
    assert measured.per_second > 0
    assert 0 < measured.latencies.percentile_us(50) <= measured.latencies.worst_us
    with Client(parse_target(address)) as client:
        assert client.get_children("/") == ("zookeeper",)


def test_working_set_of_exactly_one_batch__does_not_stall(address: str) -> None:
    # 25 znodes besides the keys: with 231 of them all requests are sent in one go.
    load = Load(parse_target(address).addresses, seconds=0.05, connections=1, keys=231)
    assert run_work(WORKS["get"], load).latencies.count > 0


def test_server_that_is_not_there__one_sentence() -> None:
    with pytest.raises(BenchFailed, match=r"127\.0\.0\.1:1: Connection refused"):
        run_work(WORKS["get"], Load((ServerAddress("127.0.0.1", 1),)))


def test_command_prints_json(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", address, "--work", "set", "--work", "lock", "--seconds", "0.1", "--json"]
    assert run(words) == 0
    document = json.loads(capsys.readouterr().out)
    assert [work["work"] for work in document["works"]] == ["set", "lock"]
    assert all(work["count"] for work in document["works"])


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["127.0.0.1:1", "--work", "nothing"], 2, "no work is called nothing"),
        (["127.0.0.1:1", "--root", "/"], 2, "--root / would be deleted"),
        (["127.0.0.1:1", "--root", "a"], 2, "a"),
        (["127.0.0.1:1", "--ca", "/no/such/file"], 2, "TLS cannot be set up"),
        (["127.0.0.1:1", "--work", "get"], 4, "get: 127.0.0.1:1"),
    ],
)
def test_bad_input__one_sentence(
    words: list[str], code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", *words]) == code
    complaint = capsys.readouterr().err
    assert complaint.startswith("keepfast: ")
    assert sentence in complaint
    assert len(complaint.splitlines()) == 1


def test_zkload_knows_the_same_works(address: str, tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("a C compiler is not installed: zkload.c cannot be compiled")
    program = tmp_path / "zkload"
    subprocess.run([compiler, "-O1", "-Wall", "-Werror", "-o", program, ZKLOAD], check=True)
    for name in WORKS:
        connections = str(CONNECTIONS.get(name, 2))
        arguments = ["-o", name, "-c", connections, "-d", "4", "-n", "20", "-m", "300", "-t", "0.1"]
        ended = subprocess.run(
            [program, "-s", address, *arguments], capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, (name, ended.stdout, ended.stderr)
        assert re.search(r'"errors":0', ended.stdout)
        assert json.loads(ended.stdout)["ops_per_s"] > 0
