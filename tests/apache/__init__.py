"""The judge: real Apache ZooKeeper 3.9.5 servers, started from the jars that PySpark installs.

`ApacheServer` and `ApacheEnsemble` start, ask and stop servers; `read_tree` and `tree_digest` read
them through a stock client; `ApacheCommands` runs the commands of the admin server; `History`
writes random histories; `run_tool` runs Apache's offline tools. Nothing here imports the package
under test: a judge that shared its decoder could not disagree with it.
"""

from tests.apache.admin import ApacheCommands
from tests.apache.history import History, Summary
from tests.apache.java import (
    ZOOKEEPER_VERSION,
    JavaNotFoundError,
    bundled_java,
    find_java,
    java_command,
    run_tool,
    zookeeper_classpath,
)
from tests.apache.reader import (
    SUPER_CREDENTIAL,
    SUPER_DIGEST,
    AclEntry,
    Identity,
    Stat,
    Znode,
    connect,
    read_tree,
    tree_digest,
)
from tests.apache.server import (
    ApacheDidNotStartError,
    ApacheEnsemble,
    ApacheServer,
    free_ports,
)
from tests.apache.words import NotReadyError, wait_until

__all__ = [
    "SUPER_CREDENTIAL",
    "SUPER_DIGEST",
    "ZOOKEEPER_VERSION",
    "AclEntry",
    "ApacheCommands",
    "ApacheDidNotStartError",
    "ApacheEnsemble",
    "ApacheServer",
    "History",
    "Identity",
    "JavaNotFoundError",
    "NotReadyError",
    "Stat",
    "Summary",
    "Znode",
    "bundled_java",
    "connect",
    "find_java",
    "free_ports",
    "java_command",
    "read_tree",
    "run_tool",
    "tree_digest",
    "wait_until",
    "zookeeper_classpath",
]
