"""The catalogue of keys: which are known, by which names, and which are ignored here.

Four kinds of key:

- settings, declared in the groups of `ServerConfig`, and families of keys such as `server.N`;
- keys that are ignored here: about Java, or about Apache's implementation. They are accepted;
- keys that are not supported, and would change what is safe or right if they were passed over in
  silence. They are refused, except with the value that asks for nothing;
- everything else is unknown: a warning names the nearest known key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from keepfast.apache.config_ensemble import GROUP_PREFIX, SERVER_PREFIX, WEIGHT_PREFIX
from keepfast.apache.config_prose import MISNAMED, UNSUPPORTED, WITHOUT_MEANING
from keepfast.apache.config_security import AUTH_PROVIDER_PREFIX, SUPER_USER_KEY
from keepfast.apache.config_server import ServerConfig, group_settings
from keepfast.apache.config_settings import Scope, Setting

PROPERTY_PREFIX: Final = "zookeeper."
OWN_PREFIX: Final = "keepfast."
VARIABLE_PREFIX: Final = "KEEPFAST_"
ACCEPT_UNSAFE_KEY: Final = "keepfast.acceptUnsafe"
SECRETS_FILE_KEY: Final = "keepfast.secretsFile"

# Every setting by its full key, as zoo.cfg has it.
SETTINGS: Final[dict[str, Setting]] = {
    key: declared for _, _, key, declared in group_settings(ServerConfig())
}
ALIASES: Final[dict[str, str]] = {
    alias: key for key, declared in SETTINGS.items() for alias in declared.aliases
}
# Settings that Apache reads under their bare name alone, and those it reads under both.
PROPERTY_ONLY: Final = frozenset(
    key for key, declared in SETTINGS.items() if declared.scope is Scope.PROPERTY
)
ALSO_BARE: Final = frozenset(
    (
        *(key for key, declared in SETTINGS.items() if declared.scope is Scope.BOTH),
        *("learner.asyncSending", "learner.closeSocketAsync", "leader.closeSocketAsync"),
        *("leader.nodelay", "follower.nodelay"),
    )
)
FAMILIES: Final = (
    SERVER_PREFIX,
    GROUP_PREFIX,
    WEIGHT_PREFIX,
    AUTH_PROVIDER_PREFIX,
    f"{SUPER_USER_KEY}.",
)
# Known keys that are neither settings nor of a family.
SINGLE_KEYS: Final = frozenset((SUPER_USER_KEY, ACCEPT_UNSAFE_KEY))

# System properties of Java itself and of its logging libraries.
_OF_JAVA: Final = (
    *("java.", "javax.", "jdk.", "sun.", "com.sun.", "file.", "user.", "os.", "line.", "path."),
    *("log4j", "logback", "slf4j", "org.slf4j", "http.", "https.", "networkaddress", "visualvm"),
    *("io.netty", "org.eclipse", "org.jboss", "stdout.", "stderr."),
)

# The variables of the official image, instead of which it writes these keys into zoo.cfg.
IMAGE_VARIABLES: Final[dict[str, str]] = {
    "ZOO_MY_ID": "keepfast.myId",
    "ZOO_DATA_DIR": "dataDir",
    "ZOO_DATA_LOG_DIR": "dataLogDir",
    "ZOO_TICK_TIME": "tickTime",
    "ZOO_INIT_LIMIT": "initLimit",
    "ZOO_SYNC_LIMIT": "syncLimit",
    "ZOO_MAX_CLIENT_CNXNS": "maxClientCnxns",
    "ZOO_STANDALONE_ENABLED": "standaloneEnabled",
    "ZOO_ADMINSERVER_ENABLED": "admin.enableServer",
    "ZOO_AUTOPURGE_PURGEINTERVAL": "autopurge.purgeInterval",
    "ZOO_AUTOPURGE_SNAPRETAINCOUNT": "autopurge.snapRetainCount",
    "ZOO_4LW_COMMANDS_WHITELIST": "4lw.commands.whitelist",
}
IMAGE_SERVERS: Final = "ZOO_SERVERS"
IMAGE_EXTRA: Final = "ZOO_CFG_EXTRA"
# What the image sets if its user names the servers and nothing else.
IMAGE_DEFAULTS: Final = {"tickTime": "2000", "initLimit": "5", "syncLimit": "2"}

_WORD_BOUNDARY: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[.-]")
_FAMILY_VARIABLE: Final = re.compile(r"(SERVER|GROUP|WEIGHT|AUTHPROVIDER|SUPERUSER)([0-9]+)\Z")
_FAMILY_OF: Final = {family.rstrip(".").upper(): family for family in FAMILIES}


def canonical(key: str) -> str:
    """The name under which a key is kept."""
    return ALIASES.get(key, key)


def is_known(key: str) -> bool:
    """Whether a key, by its canonical name, has a value that counts."""
    if key in WITHOUT_MEANING:  # server.principal is not a server's line
        return False
    return key in SETTINGS or key in SINGLE_KEYS or key.startswith(FAMILIES)


def is_of_java(name: str) -> bool:
    """Whether a system property is about Java, and no server reads it."""
    return name.startswith(_OF_JAVA)


def nearest(key: str) -> str | None:
    """The known key that `key` was most likely meant to be."""
    if key in MISNAMED:
        return MISNAMED[key]
    by_lower = {known.lower(): known for known in (*WITHOUT_MEANING, *UNSUPPORTED, *ALIASES)}
    by_lower |= {known.lower(): known for known in (*SINGLE_KEYS, *SETTINGS)}
    wanted = key.removeprefix(PROPERTY_PREFIX).lower()
    if wanted in by_lower:
        return by_lower[wanted]
    found = closest(wanted, by_lower, cutoff=0.7)
    return None if found is None else by_lower[found]


def is_secret(key: str) -> bool:
    """Whether the value of a key must not be shown."""
    declared = SETTINGS.get(key)
    return declared is not None and declared.is_secret


def closest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known word that is closest to another one; None: none is close."""
    # Imported only after a typo: startup is little more than imports.
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, known, n=1, cutoff=cutoff)), None)


def property_name(key: str) -> str:
    """The Java system property of a key."""
    if key in PROPERTY_ONLY or key.startswith(OWN_PREFIX):
        return key
    return PROPERTY_PREFIX + key


def variable_name(key: str) -> str:
    """The environment's variable of a key: KEEPFAST_TICK_TIME for tickTime."""
    words = _WORD_BOUNDARY.sub("_", key.removeprefix(OWN_PREFIX))
    return VARIABLE_PREFIX + words.upper()


def key_of_variable(name: str) -> str | None:
    """The key of a KEEPFAST_ variable; underscores inside do not count. None: unknown."""
    squeezed = _squeezed(name)
    if squeezed in _KEY_OF_VARIABLE:
        return _KEY_OF_VARIABLE[squeezed]
    family = _FAMILY_VARIABLE.match(squeezed)
    return None if family is None else _FAMILY_OF[family[1]] + family[2]


def nearest_variable(name: str) -> str | None:
    """The variable that `name` was most likely meant to be."""
    found = closest(_squeezed(name), _KEY_OF_VARIABLE, cutoff=0.7)
    return None if found is None else variable_name(_KEY_OF_VARIABLE[found])


def _squeezed(name: str) -> str:
    return name.removeprefix(VARIABLE_PREFIX).replace("_", "")


_KEY_OF_VARIABLE: Final[dict[str, str]] = {
    _squeezed(variable_name(key)): key
    for key in (*WITHOUT_MEANING, *UNSUPPORTED, *SINGLE_KEYS, *SETTINGS)
}
