"""How the official ZooKeeper image starts a server: from a mounted file or from its variables.

The image's entry script writes a zoo.cfg from ZOO_* variables where none is mounted. Here nothing
is written: the variables are read as they are, with the defaults that the image gives them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, NamedTuple

from keepfast.apache.config_keys import IMAGE_SERVERS

_CONF_DIR: Final = "ZOO_CONF_DIR"
_DATA_DIR: Final = "ZOO_DATA_DIR"
_MY_ID: Final = "ZOO_MY_ID"
# Those that differ from a server's own defaults. Not the image's purge interval of 0: it lets the
# disk fill.
_DEFAULTS: Final = {
    _CONF_DIR: "/conf",
    _DATA_DIR: "/data",
    "ZOO_DATA_LOG_DIR": "/datalog",
    IMAGE_SERVERS: "server.1=localhost:2888:3888;2181",
}


class ImageStart(NamedTuple):
    """What a container is started with."""

    # The mounted configuration; None: there is none, and the variables count.
    path: str | None
    environment: Mapping[str, str]


def image_start(environment: Mapping[str, str]) -> ImageStart:
    """How the official image would start with an environment."""
    given = {name: value for name, value in environment.items() if value}
    filled = {**_DEFAULTS, **given}
    path = os.path.join(filled[_CONF_DIR], "zoo.cfg")
    if os.path.isfile(path):
        return ImageStart(path, environment)
    if _MY_ID not in filled and not os.path.exists(os.path.join(filled[_DATA_DIR], "myid")):
        filled[_MY_ID] = "1"
    return ImageStart(None, filled)
