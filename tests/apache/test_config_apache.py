"""The same files read by Apache ZooKeeper 3.9.5 itself and by us: same values, same refusals."""

from __future__ import annotations

import shutil
import subprocess
from itertools import product
from pathlib import Path

import pytest

from keepfast.apache.config import ConfigError, ServerConfig, load_config
from keepfast.quorum import Address
from tests.apache.java import java_command

# Reads folders, one a line, and answers with the values of the zoo.cfg in each.
_JUDGE = """
import java.net.InetSocketAddress;
import java.util.*;
import org.apache.zookeeper.server.quorum.QuorumPeerConfig;

public class Judge {
    static String show(InetSocketAddress address) {
        return address == null ? "null" : address.getHostString() + ":" + address.getPort();
    }
    public static void main(String[] arguments) {
        Scanner in = new Scanner(System.in);
        while (in.hasNextLine()) {
            String folder = in.nextLine();
            QuorumPeerConfig.setStandaloneEnabled(true);
            System.setProperty("zookeeper.multiAddress.enabled", "false");
            QuorumPeerConfig config = new QuorumPeerConfig();
            try {
                config.parse(folder + "/zoo.cfg");
            } catch (Exception error) {
                System.out.println("answer refused");
                continue;
            }
            System.out.println("answer " + String.join("|",
                "" + config.getTickTime(), "" + config.getMinSessionTimeout(),
                "" + config.getMaxSessionTimeout(), "" + config.getInitLimit(),
                "" + config.getSyncLimit(), "" + config.getMaxClientCnxns(),
                show(config.getClientPortAddress()), show(config.getSecureClientPortAddress()),
                "" + config.getDataDir(), "" + config.getDataLogDir(),
                "" + config.isDistributed(), "" + config.getServerId(),
                "" + config.getSnapRetainCount(), "" + config.getPurgeInterval(),
                config.getPeerType().name().toLowerCase(),
                config.getQuorumVerifier().toString().replace("\\n", ",")));
        }
    }
}
"""

_TIMES = ["", "tickTime=2000", "tickTime=500\nmaxSessionTimeout=9000"]
# The default of the interval is another one here, on purpose.
_PURGE = "autopurge.purgeInterval=0"
_PORTS = [
    f"{_PURGE}\nclientPort=2181",
    f"{_PURGE}\nclientPort=2181\nclientPortAddress=127.0.0.1",
]
_LIMITS = ["initLimit=5\nsyncLimit=2", "initLimit=5\nsyncLimit=2\nsyncEnabled=FALSE"]
_MEMBERS = [
    "",
    "server.1=127.0.0.1:2888:3888",
    "server.1=127.0.0.1:2888:3888\nstandaloneEnabled=false",
    "server.1=a:1:2\nserver.2=b:1:2:observer\nserver.3=c:1:2:participant;127.0.0.1:2182",
    "server.1=a:1:2;127.0.0.1:2181\nserver.2=[::1]:1:2;0.0.0.0:2181",
    "server.1=a:1:2\nserver.2=b:1:2\nserver.3=c:1:2\ngroup.1=1:2\ngroup.2=3\nweight.3=2",
    "server.1=a:1:2:observer\nserver.2=b:1:2\nserver.3=c:1:2",
]
# On top of a good file.
_OTHERS = [
    "autopurge.snapRetainCount=1\nautopurge.purgeInterval=24",
    "dataLogDir=/logs\n  maxClientCnxns : 0 ",
    "maxSessionTimeout=\\u0031\\\n   00000\n! comment\n#clientPort=1",
    "tick\\\n  Time=1234",
    "clientPort=2281\nclientPort=2282",
    "unknown.key=1\nsnapCount=5",
]
_REFUSED = [
    "tickTime=0",
    "tickTime=x",
    "tickTime=500\nmaxSessionTimeout=900",
    "minSessionTimeout=70000",
    "clientPort=x",
    "clientPort=\\u12",
    "secureClientPortAddress=127.0.0.1",
    "peerType=voter",
    "electionAlg=2",
    "metricsProvider.className=com.acme.Metrics",
    "autopurge.purgeInterval=x",
    "syncEnabled=yes",
    "quorum.auth.serverRequireSasl=true\nserver.1=a:1:2\nserver.2=b:1:2",
    "initLimit=0\nserver.1=a:1:2\nserver.2=b:1:2",
    "server.1=a:1:2;2182\nserver.2=b:1:2",
    "server.1=a:1:2\nserver.2=b:1:2:observer",
    "server.1=a:1:2:observer",
    "server.1=a:1:2:observer\nstandaloneEnabled=false",
    "server.1=a:1\nserver.2=b:1:2",
    "server.1=a:1:1\nserver.2=b:1:2",
    "server.1=a:1:2:voter\nserver.2=b:1:2",
    "server.1=a:1:2;1;2;3\nserver.2=b:1:2",
    "server.1=a:1:2|c:1:2\nserver.2=b:1:2",
    "server.x=a:1:2",
    "server.1=a:1:2\nserver.2=b:1:2\nserver.3=c:1:2\ngroup.1=1:2",
    "server.1=a:1:2\nserver.2=b:1:2\ngroup.1=1:2\ngroup.2=2",
    "server.1=a:1:2\nserver.2=b:1:2\ngroup.1=1:2:3",
    "dynamicConfigFile=/none/zoo.cfg.dynamic",
]


def texts() -> list[str]:
    """The good ones, then those that both refuse."""
    good = ["\n".join(parts) for parts in product(_TIMES, _PORTS, _LIMITS, _MEMBERS)]
    base = f"{_PORTS[0]}\n{_LIMITS[0]}"
    return good + [f"{base}\n{other}" for other in (*_OTHERS, *_REFUSED)]


def answer_of(config: ServerConfig) -> str:
    """Our values in the words of the judge."""

    def show(address: Address | None) -> str:
        return "null" if address is None else f"{address.host}:{address.port}"

    timing, data, ensemble = config.timing, config.data, config.ensemble
    values = (
        *(timing.tick_time_ms, timing.min_session_timeout_ms, timing.max_session_timeout_ms),
        *(timing.init_limit, timing.sync_limit, config.limits.max_client_cnxns),
        *(show(config.client_address), show(config.secure_client_address)),
        *(data.data_dir, data.data_log_dir, str(config.is_distributed).lower()),
        -1 if ensemble.my_id is None else ensemble.my_id,
        *(data.autopurge_snap_retain_count, data.autopurge_purge_interval_ms // 3_600_000),
        ensemble.peer_type.value,
        ensemble.membership.text().decode().replace("\n", ","),
    )
    return "|".join(map(str, values))


def ask_apache(folder: Path, folders: list[Path]) -> list[str]:
    source = folder / "Judge.java"
    source.write_text(_JUDGE)
    output = subprocess.run(
        java_command(str(source), []),
        input="".join(f"{one}\n" for one in folders),
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    ).stdout
    lines = output.splitlines()
    return [line.removeprefix("answer ") for line in lines if line.startswith("answer ")]


@pytest.mark.conformance
def test_apache_reads_the_same(tmp_path: Path) -> None:
    if shutil.which("javac") is None:
        pytest.skip("no Java development kit on the PATH")
    folders = []
    for number, text in enumerate(texts()):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "myid").write_text("1\n")
        (folder / "zoo.cfg").write_text(f"dataDir={folder}\n{text}\n", encoding="iso-8859-1")
        folders.append(folder)

    answers = ask_apache(tmp_path, folders)

    assert len(answers) == len(folders)
    for folder, apache in zip(folders, answers, strict=True):
        try:
            ours = answer_of(load_config(folder / "zoo.cfg"))
        except ConfigError:
            ours = "refused"
        assert ours == apache, (folder / "zoo.cfg").read_text()
    assert [answer == "refused" for answer in answers] == [
        *(False for _ in answers[len(_REFUSED) :]),
        *(True for _ in _REFUSED),
    ]
