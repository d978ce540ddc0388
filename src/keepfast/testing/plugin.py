"""Fixtures for pytest; it finds them by itself where keepfast is installed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from keepfast.testing.ensemble import Ensemble
    from keepfast.testing.server import Server


@pytest.fixture
def keepfast_server() -> Iterator[Server]:
    """A fresh server for one test."""
    # Here: pytest loads this module in every run, also of those who do not use it.
    from keepfast.testing.server import Server

    with Server() as server:
        yield server


@pytest.fixture
def keepfast_client(keepfast_server: Server) -> Any:
    """A started kazoo client of that server; stopped with it."""
    return keepfast_server.client()


@pytest.fixture
def keepfast_ensemble() -> Iterator[Ensemble]:
    """A fresh ensemble of three servers for one test."""
    from keepfast.testing.ensemble import Ensemble

    with Ensemble() as ensemble:
        yield ensemble
