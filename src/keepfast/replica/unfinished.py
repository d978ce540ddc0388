"""Requests that take longer than a turn of the loop allows: one slice per turn."""

from __future__ import annotations


class UnfinishedError(Exception):
    """A request was begun and is not done: ask again when others have had their turn."""
