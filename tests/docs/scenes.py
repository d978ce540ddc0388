"""What is on a machine before the first command of a page: what the page speaks of."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Final

from tests.apache.java import java_command
from tests.cases import CASES_DIR
from tests.docs.machine import Machine
from tests.docs.pages import PROJECT

_SERVER: Final = """\
tickTime=2000
initLimit=10
syncLimit=5
dataDir=/var/lib/zookeeper/{id}
server.1=zk1:2888:3888;zk1:2181
server.2=zk2:2888:3888;zk2:2181
server.3=zk3:2888:3888;zk3:2181
4lw.commands.whitelist=*
admin.enableServer={has_admin}
metricsProvider.className=org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider
metricsProvider.httpHost=zk{id}
metricsProvider.httpPort=7000
"""
_APACHE: Final = """\
dataDir=/var/lib/apache
clientPort=2181
admin.enableServer=false
"""
# What somebody wrote, and deleted, before the reader came.
_HISTORY: Final = (
    *("create /config a", "create /app", "create /app/db host", "set /config b", "deleteall /app"),
)
_IS_SERVED: Final = (
    "until keepfast shell {address} ls / >/srv/asked 2>&1; do sleep 0.1; done; cat /srv/asked"
)

_BUCKET: Final = """\
from pyarrow import fs
store, _ = fs.FileSystem.from_uri("s3://backups?allow_bucket_creation=true")
store.create_dir("backups")
"""
_STORE: Final = (
    "AWS_ENDPOINT_URL=http://127.0.0.1:9000 AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b "
    "AWS_REGION=us-east-1"
)


def _nothing(machine: Machine) -> None:
    """A new machine."""


def sources(machine: Machine) -> None:
    """A clone of the sources, with its `.venv`, as the working folder."""
    for name in ("tests", "deploy", "docs"):
        machine.script(f"ln -s {shlex.quote(str(PROJECT / name))} {name}")
    machine.script('mkdir -p .venv/bin && ln -s "$(command -v keepfast)" .venv/bin/keepfast')


def cases(machine: Machine) -> None:
    """Data directories that real Apache servers wrote, by the names of their cases."""
    machine.script(f"ln -s {shlex.quote(str(CASES_DIR))}/* .")


def ensemble(machine: Machine) -> None:
    """Three servers that run, `zk1` to `zk3`; in the working folder their directories."""
    for number in (1, 2, 3):
        text = _SERVER.format(id=number, has_admin=str(number == 1).lower())
        place = f"/var/lib/zookeeper/{number}"
        machine.script(f"mkdir -p {place} && printf %s {shlex.quote(text)} >{place}/zoo.cfg")
        machine.script(f"echo {number} >{place}/myid; ln -s {place} zk{number}")
        machine.script(f"keepfast serve {place}/zoo.cfg >{place}/server.log 2>&1 &")
    machine.script("ln -s zookeeper/1 /var/lib/keepfast; mkdir -p /data /backup/zookeeper/main")
    for number in (1, 2, 3):
        places = f"/data/zk{number} /backup/zookeeper/main/{number}"
        machine.script(f"for at in {places}; do ln -s /var/lib/zookeeper/{number} $at; done")
        machine.script(_IS_SERVED.format(address=f"zk{number}:2181"))
    for line in _HISTORY:
        machine.script(f"keepfast shell zk1:2181 {line}")


def ensemble_and_store(machine: Machine) -> None:
    """The three servers, and an object store at `s3.example.com` with a bucket `backups`."""
    ensemble(machine)
    server = "from moto.server import main; main()"
    # Otherwise it would take the first part of its own name for a bucket.
    as_path = "S3_IGNORE_SUBDOMAIN_BUCKETNAME=true"
    run = f"{as_path} python -c '{server}' -H 127.0.0.1 -p 9000"
    machine.script(f"{run} >/var/log/store.log 2>&1 &")
    machine.script("until exec 3<>/dev/tcp/127.0.0.1/9000; do sleep 0.1; done 2>/srv/asked")
    machine.script(f"exec 3>&-; {_STORE} python -c {shlex.quote(_BUCKET)}")


def cases_and_ensemble(machine: Machine) -> None:
    """Both."""
    cases(machine)
    ensemble(machine)


def apache(machine: Machine) -> None:
    """A standalone server of Apache's on port 2181."""
    machine.script(f"mkdir /var/lib/apache; printf %s {shlex.quote(_APACHE)} >/var/lib/apache.cfg")
    main_class = "org.apache.zookeeper.server.ZooKeeperServerMain"
    java = shlex.join(java_command(main_class, ["/var/lib/apache.cfg"]))
    machine.script(f"{java} >/var/log/apache.log 2>&1 &")
    # By a word, not by a session: the page shows zxids. A server that is about to start may accept
    # a connection and never answer.
    machine.script(
        "until exec 3<>/dev/tcp/127.0.0.1/2181 && printf srvr >&3 && timeout 5 grep -q Mode <&3;"
        " do sleep 0.1; done 2>/srv/asked; exec 3>&-"
    )


# A page that is not here is run on a new machine.
SCENES: Final[dict[str, Callable[[Machine], None]]] = {
    "README.md": sources,
    "docs/backup.md": ensemble_and_store,
    "docs/cli.md": cases_and_ensemble,
    "docs/console.md": ensemble,
    "docs/deploy.md": ensemble,
    "docs/ensembles.md": ensemble,
    "docs/operations.md": ensemble,
    "docs/pipeline.md": cases_and_ensemble,
    "docs/shell.md": apache,
    "docs/troubleshoot.md": ensemble,
    "docs/watch.md": ensemble,
}


def set_scene(machine: Machine, page: str) -> None:
    """Put onto a machine what a page speaks of."""
    SCENES.get(page, _nothing)(machine)
