"""Requests that take longer than a turn of the loop may: a piece of them in each turn."""

from __future__ import annotations


class UnfinishedError(Exception):
    """A request was begun and is not done: ask again when others had their turn."""
