"""The files of a membership that changes: Apache's and ours, and each kind on the other's."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from keepfast.apache import load_config
from keepfast.harness import HeldPorts
from tests.apache import words
from tests.apache.server import ApacheServer
from tests.keepfast_server import KeepfastServer
from tests.mixed.servers import APACHE, KEEPFAST, PATIENCE_SECONDS, MixedEnsemble

CONFIG = "/zookeeper/config"
SETTINGS = {"reconfigEnabled": "true"}
IDS = (1, 2, 3)


class Members:
    """An ensemble whose members change, and the files that its servers write."""

    def __init__(self, root: Path, kind: str) -> None:
        self.ensemble = MixedEnsemble(
            root, dict.fromkeys(IDS, kind), configuration=SETTINGS, keeps_files=True
        )

    def place(self, kind: str) -> None:
        """Have servers of the other kind on the same files."""
        for id in IDS:
            self.ensemble.servers[id].kill()
            self.ensemble.place(id, kind)

    def folder(self, id: int) -> Path:
        return self.ensemble.servers[id].work_dir

    def files(self, id: int) -> dict[str, str]:
        """All that is beside a server's zoo.cfg, and itself."""
        found = {}
        for path in self.folder(id).glob("*zoo.cfg*"):
            # The server may take one away meanwhile.
            with suppress(FileNotFoundError):
                found[path.name] = path.read_text()
        return found

    def settings(self, id: int) -> dict[str, str]:
        """The keys and values of its zoo.cfg."""
        lines = (self.folder(id) / "zoo.cfg").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if not line.startswith("#"))

    def reconfigure(self, *wish: str | None) -> str:
        """Change the members, and wait until all files say so; gives the version."""
        return self.wait_for_version(self.change(*wish))

    def change(self, *wish: str | None) -> bytes:
        """Change the members; gives the new configuration."""
        with self.ensemble.servers[1].connect() as client:
            data: bytes = client.retry(client.reconfig, *wish)[0]
        return data

    def version(self) -> str:
        """The version of the membership that a client is told."""
        with self.ensemble.servers[1].connect() as client:
            return self.wait_for_version(client.get(CONFIG)[0])

    def wait_for_version(self, config: bytes) -> str:
        version = config.decode().rpartition("version=")[2]
        name = f"zoo.cfg.dynamic.{version}"

        def are_written() -> bool:
            return all(
                self.settings(id).get("dynamicConfigFile") == str(self.folder(id) / name)
                and "zoo.cfg.dynamic.next" not in self.files(id)
                for id in IDS
            )

        words.wait_until(are_written, f"all point to {name}", timeout=PATIENCE_SECONDS)
        return version


def wishes(ports: list[int]) -> list[tuple[str | None, str | None, str | None]]:
    """Changes of all kinds that need no further server to run."""
    observer = f"server.4=127.0.0.1:{ports[0]}:{ports[1]}:observer;127.0.0.1:{ports[2]}"
    return [
        (observer, None, None),
        (observer.replace("server.4", "server.11").replace("127.0.0.1", "[::1]"), "4", None),
        (None, "11", None),
    ]


def play(members: Members, ports: list[int]) -> list[dict[str, str]]:
    """Make all changes; gives what server 1 had written behind each, without what is its own."""
    members.ensemble.start()
    versions = [members.version()]
    versions += [members.reconfigure(*wish) for wish in wishes(ports)]
    with members.ensemble.servers[1].connect() as client:
        plain = client.get(CONFIG)[0].decode().rpartition("\nversion=")[0]
    versions.append(members.reconfigure(None, None, f"{plain}\ngroup.1=1:2:3\nweight.2=5"))
    versions.append(members.reconfigure(None, None, own_client_port(members, plain)))
    found = []
    for id in IDS:
        written = members.files(id)
        names = {f"zoo.cfg.dynamic.{version}" for version in versions}
        assert written.keys() >= {"zoo.cfg", "zoo.cfg.bak", *names}
        assert "zoo.cfg.dynamic.next" not in written
        settings = {k: v for k, v in members.settings(id).items() if k != "dynamicConfigFile"}
        texts = {str(number): written[f"zoo.cfg.dynamic.{v}"] for number, v in enumerate(versions)}
        found.append({**settings, **texts, "backup": written["zoo.cfg.bak"]})
    return found


def own_client_port(members: Members, plain: str) -> str:
    """Server 1's line says where its clients connect."""
    first, rest = plain.split("\n", 1)
    return f"{first};127.0.0.1:{members.ensemble.servers[1].port}\n{rest}"


@pytest.mark.conformance
def test_same_changes__same_files_and_each_kind_starts_on_those_of_the_other(
    tmp_path: Path,
) -> None:
    members = Members(tmp_path / "e", APACHE)
    with members.ensemble, HeldPorts(3) as held:
        expected = play(members, held.numbers)
        members.place(KEEPFAST)
        # The same ports and paths: the files have to be the same to the last byte.
        shutil.rmtree(tmp_path / "e")
        members.place(KEEPFAST)
        assert play(members, held.numbers) == expected

        members.place(APACHE)
        members.ensemble.start()
        version = members.version()
        later = members.reconfigure(*wishes(held.numbers)[0])
        assert int(later, 16) > int(version, 16)

        members.place(KEEPFAST)
        members.ensemble.start()
        assert members.version() == later
        assert int(members.reconfigure(None, "4", None), 16) > int(later, 16)


# -- ours alone ----------------------------------------------------------------------------------


def joiner(root: Path, members: Members, ports: list[int]) -> tuple[KeepfastServer, str]:
    """A fourth server, whose file names all four, and its line."""
    line = f"server.4=127.0.0.1:{ports[0]}:{ports[1]}"
    data_dir = root / "4"
    data_dir.mkdir()
    (data_dir / "myid").write_text("4\n")
    lines = (members.folder(1) / "zoo.cfg.bak").read_text().splitlines()
    limits = {"tickTime": "500", "initLimit": "60", "syncLimit": "40", **SETTINGS}
    server = KeepfastServer(
        data_dir,
        configuration=limits,
        members=[*(one for one in lines if one.startswith("server.")), line],
        port=ports[2],
    )
    server.keeps_files = True
    return server, f"{line};127.0.0.1:{ports[2]}"


def serves(server: ApacheServer, *modes: str) -> None:
    def does() -> bool:
        server.raise_if_ended()
        return server.mode() in modes

    words.wait_until(does, f"it serves as one of {modes}", timeout=PATIENCE_SECONDS)


def points_to(server: ApacheServer) -> str:
    return load_config(server.work_dir / "zoo.cfg").ensemble.dynamic_config_file


def test_server_that_joins_and_leaves__has_files_that_it_can_be_started_with(
    tmp_path: Path,
) -> None:
    members = Members(tmp_path, KEEPFAST)
    with members.ensemble, HeldPorts(3) as held:
        members.ensemble.start()
        members.version()
        fourth, line = joiner(tmp_path, members, held.numbers)
        fourth.launch()
        try:
            serves(fourth, "follower", "observer")
            # Not a member yet: its own line stays, or it could not be started again.
            fourth.kill()
            assert points_to(fourth) == ""
            fourth.launch()
            serves(fourth, "follower", "observer")

            version = members.reconfigure(line, None, None)
            name = str(fourth.work_dir / f"zoo.cfg.dynamic.{version}")
            words.wait_until(
                lambda: points_to(fourth) == name, "it has the file", timeout=PATIENCE_SECONDS
            )
            fourth.kill()
            fourth.launch()
            serves(fourth, "follower")

            version = members.reconfigure(None, "4", None)
            path = fourth.work_dir / f"zoo.cfg.dynamic.{version}"
            words.wait_until(path.exists, "it knows that it left", timeout=PATIENCE_SECONDS)
            assert "server.4" not in path.read_text()
        finally:
            fourth.kill()


def test_files_that_cannot_be_written__the_server_goes_on_and_writes_them_later(
    tmp_path: Path,
) -> None:
    members = Members(tmp_path, KEEPFAST)
    with members.ensemble, HeldPorts(3) as held:
        folder = members.folder(3)
        folder.mkdir()
        obstacle = folder / "keepfast.zoo.cfg.tmp"
        obstacle.mkdir()
        members.ensemble.start()
        third = members.ensemble.servers[3]
        words.wait_until(
            lambda: "membership-files-not-written" in third.output(),
            "it says what is wrong",
            timeout=PATIENCE_SECONDS,
        )
        original = (folder / "zoo.cfg").read_text()
        data = members.change(*wishes(held.numbers)[0])
        with third.connect() as client:
            client.sync(CONFIG)
            assert client.get(CONFIG)[0] == data
        assert (folder / "zoo.cfg").read_text() == original
        assert third.output().count("membership-files-not-written") == 1
        third.kill()
        obstacle.rmdir()
        members.ensemble.start(3)
        members.wait_for_version(data)


def test_killed_server__starts_with_the_change_that_its_files_may_lack(tmp_path: Path) -> None:
    """A change and kill -9 right behind it: the files are whole, wherever that stops them."""
    members = Members(tmp_path, KEEPFAST)
    with members.ensemble, HeldPorts(3) as held:
        members.ensemble.start()
        members.version()
        for number in range(4):
            wish = wishes(held.numbers)[0] if number % 2 == 0 else (None, "4", None)
            data = members.change(*wish)
            victim = members.ensemble.servers[2 + number % 2]
            victim.kill()
            config = load_config(victim.work_dir / "zoo.cfg")
            assert config.ensemble.membership.voters == set(IDS)
            members.ensemble.start()
            members.wait_for_version(data)
