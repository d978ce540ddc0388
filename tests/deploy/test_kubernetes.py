"""The manifests: by Kubernetes' schemas, and by what our server makes of their variables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from keepfast.apache import image_start, load_config
from tests.deploy.kit import DEPLOY, find_tool, read_yaml, run_tool

FOLDER = DEPLOY / "kubernetes"
MANIFESTS = sorted(set(FOLDER.glob("*.yaml")) - {FOLDER / "kustomization.yaml"})


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: str(path.name))
def test_manifest__fits_the_schema(path: Path) -> None:
    validate = find_tool("kubernetes-validate", "PyPI's kubernetes-validate; make tools")
    assert "passed" in run_tool(validate, "--strict", path)


def test_kustomization__names_every_manifest() -> None:
    (document,) = read_yaml(FOLDER / "kustomization.yaml")
    assert sorted(document["resources"]) == [path.name for path in MANIFESTS]


def pods() -> dict[str, Any]:
    (document,) = read_yaml(FOLDER / "statefulset.yaml")
    found = document["spec"]
    assert isinstance(found, dict)
    return found


def test_each_pod__is_a_member_by_its_own_name(tmp_path: Path) -> None:
    spec = pods()
    container = spec["template"]["spec"]["containers"][0]
    variables = {one["name"]: one["value"] for one in container["env"] if "value" in one}
    places = {"ZOO_CONF_DIR": str(tmp_path), "ZOO_DATA_DIR": str(tmp_path)}
    first = spec["ordinals"]["start"]
    for number in range(first, first + spec["replicas"]):
        start = image_start({**places, **variables, "ZOO_MY_ID": str(number)})
        config = load_config(start.path, environment=start.environment)
        assert config.is_distributed
        me = config.ensemble.me
        assert me is not None
        assert me.quorum[0].host == f"keepfast-{number}.{spec['serviceName']}"
        assert len(config.ensemble.membership.members) == spec["replicas"]
        ports = {one["containerPort"] for one in container["ports"]}
        assert {me.quorum[0].port, me.election[0].port} <= ports


def test_members__start_together_and_find_each_other_before_they_are_ready() -> None:
    assert pods()["podManagementPolicy"] == "Parallel"
    members, clients = read_yaml(FOLDER / "services.yaml")
    assert members["metadata"]["name"] == pods()["serviceName"]
    assert members["spec"]["publishNotReadyAddresses"]
    assert "publishNotReadyAddresses" not in clients["spec"]
