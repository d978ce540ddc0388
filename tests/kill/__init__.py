"""kill -9 under load, again and again on one data directory: `make kill-campaign`."""
