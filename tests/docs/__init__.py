"""The documentation as tests: every command of every page, run as it is printed.

A page is run from top to bottom in a machine of its own (`machine`): its own network, so that the
ports and host names of the page are free, and its own `/etc`, `/var` and `/srv`. What has to be
there before the first command (`scenes`) is what the page speaks of: servers, or directories.
"""
