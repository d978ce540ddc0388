"""Real server processes under load and faults; `make chaos` runs the whole campaign."""
