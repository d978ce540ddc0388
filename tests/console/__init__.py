"""The console in a real Chromium, against real ensembles of both kinds."""
