"""The test suite of Apache's own C client, run on Keepfast and on Apache; see `run`."""
