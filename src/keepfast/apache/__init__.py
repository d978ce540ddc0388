"""Apache's own files and commands: zoo.cfg, properties, key stores, JAAS, four-letter words.

What may live here: reading and writing what Apache's servers and Java define, in terms of plain
values. What may not: sockets, the data directory, and anything that acts on what was read.
"""

from keepfast.apache.config import load_config
from keepfast.apache.config_ensemble import EnsembleConfig
from keepfast.apache.config_errors import ConfigError
from keepfast.apache.config_security import AuthConfig, ClientAuth, QuorumAuthConfig, TlsConfig
from keepfast.apache.config_server import ServerConfig
from keepfast.apache.config_settings import is_any_address
from keepfast.apache.config_sources import MAX_FILE_BYTES, split_definitions
from keepfast.apache.dynamic_config import (
    BACKUP_SUFFIX,
    NEXT_SUFFIX,
    dynamic_file_of,
    dynamic_text,
    holds_members,
    pointing_to,
    proposed_version,
)
from keepfast.apache.four_letter_words import (
    NOT_SERVING,
    is_complete_word,
    is_word,
    trace_mask_of,
    word_of,
    word_refusal,
)
from keepfast.apache.image import ImageStart, image_start
from keepfast.apache.jaas import (
    KerberosLogin,
    LoginModule,
    digest_users,
    kerberos_login,
    read_jaas,
)
from keepfast.apache.java_text import java_date, java_double, java_hex, java_long, java_number
from keepfast.apache.kerberos_names import (
    NameRuleError,
    NameRules,
    Principal,
    parse_principal,
)
from keepfast.apache.key_stores import KeyStore, load_identity, load_trust
from keepfast.apache.properties import MalformedProperties

__all__ = [
    "BACKUP_SUFFIX",
    "MAX_FILE_BYTES",
    "NEXT_SUFFIX",
    "NOT_SERVING",
    "AuthConfig",
    "ClientAuth",
    "ConfigError",
    "EnsembleConfig",
    "ImageStart",
    "KerberosLogin",
    "KeyStore",
    "LoginModule",
    "MalformedProperties",
    "NameRuleError",
    "NameRules",
    "Principal",
    "QuorumAuthConfig",
    "ServerConfig",
    "TlsConfig",
    "digest_users",
    "dynamic_file_of",
    "dynamic_text",
    "holds_members",
    "image_start",
    "is_any_address",
    "is_complete_word",
    "is_word",
    "java_date",
    "java_double",
    "java_hex",
    "java_long",
    "java_number",
    "kerberos_login",
    "load_config",
    "load_identity",
    "load_trust",
    "parse_principal",
    "pointing_to",
    "proposed_version",
    "read_jaas",
    "split_definitions",
    "trace_mask_of",
    "word_of",
    "word_refusal",
]
