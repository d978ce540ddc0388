"""kazoo's own test suite, run on Keepfast; see `run`."""
