"""The real world around a replica: sockets, clocks, files, configuration, operations."""
