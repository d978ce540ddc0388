"""Loading a configuration: who wins, real files, the environment, and what is shown of it."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from keepfast.apache.config import ConfigError, Row, ServerConfig, load_config, split_definitions
from keepfast.apache.config_reference import renew
from keepfast.apache.config_security import TlsConfig
from keepfast.apache.config_sources import MAX_FILE_BYTES
from keepfast.quorum import Address

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def write(folder: Path, text: str) -> Path:
    file = folder / "zoo.cfg"
    file.write_text(text)
    return file


def warnings(config: ServerConfig, folder: Path) -> list[str]:
    return [str(warning).replace(f"{folder}/", "") for warning in config.warnings]


def row(config: ServerConfig, key: str) -> Row:
    (found,) = (row for row in config.describe() if row.key == key)
    return found


# -- no file, and files as people have them -------------------------------------------------------


def test_nothing_given__is_a_standalone_server_on_loopback() -> None:
    config = load_config(None)

    assert config == ServerConfig()
    assert config.client_address == Address("127.0.0.1", 2181)
    assert config.secure_client_address is None
    assert config.data.data_dir == config.data.data_log_dir == "./keepfast-data"
    assert not config.is_distributed
    assert config.four_letter_words == {"srvr"}
    assert config.admin.server_address == "127.0.0.1"
    assert config.warnings == ()


def test_flags_alone__say_where(tmp_path: Path) -> None:
    config = load_config(None, data_dir=tmp_path, port=0)

    assert config.client_address == Address("127.0.0.1", 0)
    assert config.data.data_log_dir == str(tmp_path)
    assert row(config, "clientPort") == Row("clientPort", "0", "--port")
    assert row(config, "dataDir").origin == "--data-dir"


# The file that comes with Apache ZooKeeper, less some of its comments.
SAMPLE = """\
# The number of milliseconds of each tick
tickTime=2000
# The number of ticks that the initial
# synchronization phase can take
initLimit=10
# The number of ticks that can pass between
# sending a request and getting an acknowledgement
syncLimit=5
dataDir=/var/lib/zookeeper
# the port at which the clients will connect
clientPort=2181
#maxClientCnxns=60
#autopurge.snapRetainCount=3
#autopurge.purgeInterval=1
## Metrics Providers
#metricsProvider.className=org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider
#metricsProvider.httpHost=0.0.0.0
"""


def test_sample_of_apache__is_taken_as_it_is(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, SAMPLE))

    assert config.client_address == Address("0.0.0.0", 2181)
    assert (config.timing.tick_time_ms, config.timing.init_limit) == (2000, 10)
    assert config.timing.max_session_timeout_ms == 40_000
    assert config.warnings == ()
    assert config.initial_text == SAMPLE


KAZOO = """
tickTime=2000
dataDir={folder}
clientPort=20000
secureClientPort=20001
maxClientCnxns=0
admin.serverPort=20002
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider
ssl.keyStore.location={folder}/keystore.jks
ssl.keyStore.password=apassword
ssl.trustStore.location={folder}/truststore.jks
ssl.trustStore.password=apassword

initLimit=4
syncLimit=2
server.1=localhost:20003:20004:participant
server.2=localhost:20010:20011:participant
server.3=localhost:20020:20021:observer
server.4=localhost:20030:20031:participant
peerType=participant
"""

KAZOO_PROPERTIES = {
    "file.encoding": "UTF-8",
    "readonlymode.enabled": "true",
    "zookeeper.log.dir": "log",
    "zookeeper.root.logger": "INFO,CONSOLE",
    "log4j.configuration": "file:log4j.properties",
    "java.awt.headless": "true",
    "java.security.auth.login.config": "jaas.conf",
    "zookeeper.extendedTypesEnabled": "true",
}


def test_configuration_of_kazoos_tests__is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "myid").write_text("1")
    file = write(tmp_path, KAZOO.format(folder=tmp_path))

    config = load_config(file, overrides=KAZOO_PROPERTIES)

    assert config.is_distributed
    assert config.auth.schemes == {"ip", "digest", "sasl", "x509"}
    assert config.auth.jaas_file == "jaas.conf"
    assert config.features.read_only_mode
    assert config.features.extended_types
    assert config.tls.key_store_password == "apassword"
    assert warnings(config, tmp_path) == [
        "zoo.cfg:8: serverCnxnFactory: has no meaning here: this part is built in another way here",
        "-Dzookeeper.log.dir: has no meaning here: Java's logging is not used here",
        "-Dzookeeper.root.logger: has no meaning here: Java's logging is not used here",
        (
            "-Dfile.encoding, -Djava.awt.headless, -Dlog4j.configuration: no meaning here: "
            "there is no Java virtual machine"
        ),
    ]


BITNAMI = """\
# The number of milliseconds of each tick
tickTime=2000
initLimit=10
syncLimit=5
dataDir=/bitnami/zookeeper/data
clientPort=2181
maxClientCnxns=60
autopurge.snapRetainCount=3
autopurge.purgeInterval=0
preAllocSize=65536
snapCount=100000
maxCnxns=0
reconfigEnabled=false
quorumListenOnAllIPs=false
4lw.commands.whitelist=srvr, mntr, ruok
maxSessionTimeout=40000
admin.serverPort=8080
admin.enableServer=true
"""


def test_configuration_of_a_common_image__is_taken_as_it_is(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, BITNAMI))

    assert config.warnings == ()
    assert config.four_letter_words == {"srvr", "mntr", "ruok"}


def test_java_forms_of_a_file__are_understood(tmp_path: Path) -> None:
    text = (
        "  tickTime : 2000\r\n"
        "dataDir  \\\r\n   = /var/lib/zoo\\\r\n      keeper\r\n"
        "! comment\r\n"
        "client\\u0050ort\t2181  \r\n"
    )

    config = load_config(write(tmp_path, text))

    assert config.timing.tick_time_ms == 2000
    assert config.data.data_dir == "/var/lib/zookeeper"
    assert config.client.port == 2181


# -- who wins --------------------------------------------------------------------------------------

LAYERS: list[tuple[str, dict[str, Any]]] = [
    ("--port", {"port": 1}),
    ("-Dzookeeper.clientPort", {"overrides": {"zookeeper.clientPort": "2"}}),
    ("KEEPFAST_CLIENT_PORT", {"environment": {"KEEPFAST_CLIENT_PORT": "3"}}),
    ("JVMFLAGS: -Dzookeeper.clientPort", {"environment": {"JVMFLAGS": "-Dzookeeper.clientPort=4"}}),
]


@pytest.mark.parametrize("strongest", range(len(LAYERS) + 1))
def test_order__flag_definition_variable_java_flags_file(strongest: int, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {}
    for _, layer in reversed(LAYERS[strongest:]):
        for name, value in layer.items():
            before = arguments.get(name, {})
            arguments[name] = {**before, **value} if isinstance(value, dict) else value

    config = load_config(write(tmp_path, "dataDir=/data\nclientPort=5\n"), **arguments)

    assert config.client.port == strongest + 1
    expected = [name for name, _ in LAYERS] + [f"{tmp_path}/zoo.cfg:2"]
    assert row(config, "clientPort").origin == expected[strongest]


def test_definition_against_the_file__wins_and_says_that_apache_differs(tmp_path: Path) -> None:
    file = write(tmp_path, "dataDir=/data\nclientPort=1\nsnapCount=10\ntickTime=3000\n")
    properties = {"zookeeper.snapCount": "20", "zookeeper.tickTime": "3000"}

    config = load_config(file, overrides=properties)

    assert config.data.snap_count == 20
    assert warnings(config, tmp_path) == [
        "-Dzookeeper.snapCount: counts more than zoo.cfg:3; in Apache the file would win"
    ]


def test_same_key_twice__the_last_one_counts_with_a_warning(tmp_path: Path) -> None:
    text = "dataDir=/data\nclientPort=1\ntickTime=2000\ntickTime=3000\nclientPort=1\n"

    config = load_config(write(tmp_path, text))

    assert config.timing.tick_time_ms == 3000
    assert warnings(config, tmp_path) == ["zoo.cfg:4: tickTime: replaces the one of zoo.cfg:3"]


def test_java_flags__the_last_variable_wins_and_other_flags_do_not_count() -> None:
    environment = {
        "SERVER_JVMFLAGS": "-Xmx1g -Dzookeeper.snapCount=10 -Djute.maxbuffer=0x200000",
        "JVMFLAGS": "-XX:+UseG1GC -Dzookeeper.snapCount=20 -Dcom.sun.management.jmxremote",
    }

    config = load_config(None, environment=environment)

    assert config.data.snap_count == 20
    assert config.limits.jute_max_buffer == 0x200000
    assert [str(warning) for warning in config.warnings] == [
        "-Dcom.sun.management.jmxremote: no meaning here: there is no Java virtual machine"
    ]


def test_definitions__are_split_as_java_does() -> None:
    arguments = ["-Da=1", "b=2", "-Dc", "-Dd==x", "-Da=3"]

    assert split_definitions(arguments) == {"a": "3", "b": "2", "c": "", "d": "=x"}


# -- the official image's variables ----------------------------------------------------------------

IMAGE = {
    "ZOO_MY_ID": "2",
    "ZOO_SERVERS": "server.1=zoo1:2888:3888;2181 server.2=0.0.0.0:2888:3888;2181 "
    "server.3=zoo3:2888:3888;2181",
    "ZOO_DATA_DIR": "/data",
    "ZOO_DATA_LOG_DIR": "/datalog",
    "ZOO_MAX_CLIENT_CNXNS": "100",
    "ZOO_STANDALONE_ENABLED": "false",
    "ZOO_ADMINSERVER_ENABLED": "false",
    "ZOO_AUTOPURGE_PURGEINTERVAL": "1",
    "ZOO_AUTOPURGE_SNAPRETAINCOUNT": "5",
    "ZOO_4LW_COMMANDS_WHITELIST": "mntr, conf, ruok",
    "ZOO_CFG_EXTRA": "quorumListenOnAllIPs=true metricsProvider.httpPort=7070",
    "ZOO_LOG_DIR": "/logs",
    "ZOO_CONF_DIR": "/conf",
}


def test_variables_of_the_image__are_a_configuration() -> None:
    config = load_config(None, environment=IMAGE)

    assert config.is_distributed
    assert config.ensemble.my_id == 2
    assert config.ensemble.quorum_listen_on_all_ips
    assert config.client_address == Address("0.0.0.0", 2181)
    assert (config.data.data_dir, config.data.data_log_dir) == ("/data", "/datalog")
    assert config.data.autopurge_purge_interval_ms == 3_600_000
    assert config.four_letter_words == {"srvr", "mntr", "conf", "ruok"}
    # What the image sets by itself.
    assert (config.timing.tick_time_ms, config.timing.init_limit) == (2000, 5)
    assert config.timing.sync_limit == 2
    assert config.warnings == ()


def test_variables_of_the_image__may_override_its_defaults() -> None:
    environment = {**IMAGE, "ZOO_TICK_TIME": "500", "ZOO_INIT_LIMIT": "7", "ZOO_SYNC_LIMIT": ""}

    timing = load_config(None, environment=environment).timing

    assert (timing.tick_time_ms, timing.init_limit, timing.sync_limit) == (500, 7, 2)


def test_variables_of_the_image__do_not_count_beside_a_file(tmp_path: Path) -> None:
    file = write(tmp_path, "dataDir=/other\nclientPort=2181\n")

    config = load_config(file, environment={**IMAGE, "ZOO_TICK_TIME": "1"})

    assert config.data.data_dir == "/other"
    assert config.timing.tick_time_ms == 3000
    (warning,) = config.warnings
    assert str(warning).startswith("ZOO_MY_ID, ZOO_DATA_DIR, ")
    assert str(warning).endswith("ZOO_SERVERS, ZOO_CFG_EXTRA: ignored because there is a file")


def test_unknown_variable__is_a_warning_and_an_empty_one_does_not_count() -> None:
    environment = {"KEEPFAST_TICKTIMES": "1", "KEEPFAST_BOGUS": "1", "KEEPFAST_TICK_TIME": ""}

    config = load_config(None, environment=environment)

    assert [str(warning) for warning in config.warnings] == [
        "KEEPFAST_BOGUS: unknown variable, ignored",
        "KEEPFAST_TICKTIMES: unknown variable, ignored; did you mean KEEPFAST_TICK_TIME?",
    ]


def test_members_by_variables() -> None:
    environment = {
        "KEEPFAST_SERVER_1": "a:1:2",
        "KEEPFAST_SERVER_2": "b:1:2",
        "KEEPFAST_SERVER_3": "c:1:2;2182",
        "KEEPFAST_MY_ID": "3",
        "KEEPFAST_INIT_LIMIT": "5",
        "KEEPFAST_SYNC_LIMIT": "5",
    }

    config = load_config(None, environment=environment)

    assert config.is_distributed
    assert config.client_address == Address("0.0.0.0", 2182)
    assert row(config, "clientPort").origin == "server.3"


# -- unsafe values ---------------------------------------------------------------------------------

UNSAFE = [
    ("db.autocreate", "true", "data.db_autocreate"),
    ("skipACL", "yes", "features.skip_acl"),
]


@pytest.mark.parametrize(("key", "value", "path"), UNSAFE)
def test_unsafe_value__is_refused_until_it_is_acknowledged(
    key: str, value: str, path: str, tmp_path: Path
) -> None:
    text = f"dataDir=/data\nclientPort=1\n{key}={value}\n"
    with pytest.raises(ConfigError, match=f"acknowledge it with keepfast.acceptUnsafe={key}"):
        load_config(write(tmp_path, text))

    config = load_config(write(tmp_path, f"{text}keepfast.acceptUnsafe={key}\n"))

    group, field = path.split(".")
    default = getattr(getattr(ServerConfig(), group), field)
    assert getattr(getattr(config, group), field) is not default
    assert config.accepted_unsafe == {key}
    (warning,) = config.warnings
    assert str(warning).startswith(f"{tmp_path}/zoo.cfg:3: {key}: unsafe, and acknowledged: ")


def test_unsafe_value__may_be_acknowledged_from_every_side() -> None:
    overrides = {"zookeeper.skipACL": "yes"}
    by_variable = load_config(
        None, overrides=overrides, environment={"KEEPFAST_ACCEPT_UNSAFE": "skipACL"}
    )
    overrides["keepfast.acceptUnsafe"] = "skipacl"

    assert by_variable.features.skip_acl
    assert load_config(None, overrides=overrides).features.skip_acl


@pytest.mark.parametrize(("key", "value", "path"), UNSAFE)
def test_unsafe_keys_safe_value__needs_no_acknowledgement(
    key: str, value: str, path: str, tmp_path: Path
) -> None:
    other = {"no": "yes", "yes": "no", "true": "false", "false": "true"}[value]

    config = load_config(write(tmp_path, f"dataDir=/data\nclientPort=1\n{key}={other}\n"))

    assert config.warnings == ()
    assert row(config, key).value == other


# -- what is shown ---------------------------------------------------------------------------------


def test_description__has_every_key_its_value_and_its_origin(tmp_path: Path) -> None:
    (tmp_path / "myid").write_text("1\n")
    file = write(tmp_path, KAZOO.format(folder=tmp_path))

    rows = load_config(file, overrides=KAZOO_PROPERTIES).describe()

    by_key = {key: (value, origin.replace(f"{tmp_path}/", "")) for key, value, origin in rows}
    assert len(by_key) == len(rows)
    assert by_key["tickTime"] == ("2000", "zoo.cfg:2")
    assert by_key["minSessionTimeout"] == ("4000", "default (2 x tickTime)")
    assert by_key["snapCount"] == ("100000", "default")
    assert by_key["readonlymode.enabled"] == ("true", "-Dreadonlymode.enabled")
    assert by_key["authProvider.*"] == ("sasl,x509", "zoo.cfg:9")
    assert by_key["keepfast.myId"] == ("1", "myid")
    assert by_key["server.3"] == ("localhost:20020:20021:observer", "zoo.cfg:19")
    assert by_key["ssl.quorum.clientHostnameVerification"] == ("true", "default")


def test_secrets__are_shown_nowhere(tmp_path: Path) -> None:
    text = (
        "dataDir=/data\nclientPort=1\nssl.keyStore.password=hush1\n"
        "ssl.quorum.trustStore.password=hush2\n"
        "DigestAuthenticationProvider.superDigest=super:hush3\n"
        "SASLAuthenticationProvider.superPassword=hush4\n"
    )

    config = load_config(write(tmp_path, text))

    assert "hush" not in repr(config)
    assert "hush" not in repr(config.describe())
    assert row(config, "ssl.keyStore.password").value == "***"
    assert row(config, "ssl.trustStore.password").value == ""
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, text.replace("super:hush3", "hush3")))
    assert "hush" not in str(caught.value)
    assert "hush" not in repr(caught.value.__dict__)


def test_password_file__counts_more_than_the_password_and_is_read_each_time(
    tmp_path: Path,
) -> None:
    file = tmp_path / "password"
    tls = TlsConfig(key_store_password="a", key_store_password_path=str(file))
    with pytest.raises(ConfigError, match="the password file cannot be read"):
        tls.read_key_store_password()

    file.write_text("one\n")
    assert tls.read_key_store_password() == "one"
    file.write_text("two")
    assert tls.read_key_store_password() == "two"
    assert TlsConfig(trust_store_password="b").read_trust_store_password() == "b"


def test_file_that_is_none__is_an_error(tmp_path: Path) -> None:
    for path, reason in (
        (tmp_path / "none", "the configuration file cannot be read: No such file or directory"),
        (tmp_path, "the configuration file cannot be read: Is a directory"),
    ):
        with pytest.raises(ConfigError) as caught:
            load_config(path)
        assert str(caught.value) == f"{path}: {reason}"
        assert caught.value.file == str(path)

    with pytest.raises(ConfigError, match=f"is longer than {MAX_FILE_BYTES} bytes"):
        load_config(write(tmp_path, "#" * (MAX_FILE_BYTES + 1)))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ({"snapCount": "1"}, "snapCount: 1 is too small, 2 is used"),
        (
            {"autopurge.snapRetainCount": "1"},
            "autopurge.snapRetainCount: 1 is too small, 3 is used",
        ),
        (
            {"4lw.commands.whitelist": "mntr,rouk"},
            "4lw.commands.whitelist: rouk is no four-letter word; did you mean ruok?",
        ),
        (
            {"dataLogDir": "logs"},
            "dataLogDir: relative: another working directory means other data",
        ),
        ({"ticktime": "1"}, "ticktime: unknown key, ignored; did you mean tickTime?"),
        ({"some.thing": "1"}, "some.thing: unknown key, ignored"),
        (
            {"connectionMaxTokens": "1"},
            "connectionMaxTokens: unknown key, ignored; did you mean connection_throttle_tokens?",
        ),
        (
            {"zookeeper.snapCount": "1"},
            "zookeeper.snapCount: unknown key, ignored; did you mean snapCount?",
        ),
        (
            {"dataLogDir": "/zk/\xe9"},
            "dataLogDir: read as ISO-8859-1, as Java does; write \\uXXXX instead",
        ),
    ],
)
def test_doubtful_line__is_a_warning_with_its_place(
    lines: Mapping[str, str], expected: str, tmp_path: Path
) -> None:
    text = "dataDir=/data\nclientPort=1\n"
    text += "".join(f"{key}={value}\n" for key, value in lines.items())

    (warning,) = load_config(write(tmp_path, text)).warnings

    assert str(warning) == f"{tmp_path}/zoo.cfg:3: {expected}"
    assert (warning.file, warning.line) == (f"{tmp_path}/zoo.cfg", 3)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("zookeeper.snapcount", "unknown key, ignored; did you mean -Dzookeeper.snapCount?"),
        ("snapCount", "unknown system property, ignored; did you mean -Dzookeeper.snapCount?"),
        ("jute.maxBuffer", "unknown system property, ignored; did you mean -Djute.maxbuffer?"),
        ("keepfast.myid", "unknown key, ignored; did you mean -Dkeepfast.myId?"),
        ("something.else", "unknown system property, ignored"),
    ],
)
def test_unknown_system_property__is_a_warning(name: str, expected: str) -> None:
    (warning,) = load_config(None, overrides={name: "1"}).warnings

    assert str(warning) == f"-D{name}: {expected}"


def test_error__survives_a_process_border() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(None, overrides={"zookeeper.tickTime": "x", "zookeeper.snapCount": "y"})

    copy = pickle.loads(pickle.dumps(caught.value))

    assert str(copy) == str(caught.value)
    assert (copy.key, copy.value, len(copy.others)) == ("tickTime", "x", 1)


def test_documentation__has_the_tables_that_the_settings_declare() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert page == renew(page), "run: python -m keepfast.apache.config_reference " + PAGE.name


def test_snap_count_given__counts_however_large_the_tree_is(tmp_path: Path) -> None:
    plain = write(tmp_path, "dataDir=/data\nclientPort=1\n")
    assert load_config(plain).data.snap_znode_percent == 50
    file = write(tmp_path, "dataDir=/data\nclientPort=1\nsnapCount=1000\n")
    config = load_config(file)
    assert config.data.snap_znode_percent == 0
    assert row(config, "keepfast.snapZnodePercent").origin == "snapCount"
    both = write(
        tmp_path, "dataDir=/data\nclientPort=1\nsnapCount=1000\nkeepfast.snapZnodePercent=20\n"
    )
    assert load_config(both).data.snap_znode_percent == 20
