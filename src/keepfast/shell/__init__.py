"""`keepfast shell`: the commands and flags of ZooKeeper's own shell, over `keepfast.client`.

What may live here: parsing of command lines, the commands, their text and JSON, and the interactive
loop. What may not: anything about bytes on the wire (`wire`) or about sessions (`client`).
"""

from keepfast.shell.formats import permission_bits, permission_letters, stat_document
from keepfast.shell.messages import failure_message
from keepfast.shell.quotas import QuotaText
from keepfast.shell.shell_failures import UsageError
from keepfast.shell.shell_main import run_shell
from keepfast.shell.shell_options import OPTIONS, SYNOPSIS, Tls

__all__ = [
    "OPTIONS",
    "SYNOPSIS",
    "QuotaText",
    "Tls",
    "UsageError",
    "failure_message",
    "permission_bits",
    "permission_letters",
    "run_shell",
    "stat_document",
]
