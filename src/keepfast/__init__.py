"""Keepfast: a coordination service compatible with Apache ZooKeeper, and its audit.

Nothing lives here but the version. The sub-packages are the architecture, each importing only
those to its left: wire <- tree | quorum | client <- replica | storage | apache <- driver <-
server | sim | pipeline | shell <- lab | console <- cli | testing (docs/architecture.md).
"""

__version__ = "0.2.0"
