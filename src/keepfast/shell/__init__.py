"""`keepfast shell`: the words and flags of ZooKeeper's own shell, over `keepfast.client`.

What may live here: parsing of command lines, the commands, their text and JSON, and the interactive
loop. What may not: anything about bytes on the wire (`wire`) or about sessions (`client`).
"""

from keepfast.shell.run import run_shell

__all__ = ["run_shell"]
