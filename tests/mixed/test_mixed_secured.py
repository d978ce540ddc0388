"""Apache's servers and ours in one ensemble whose servers prove themselves and talk by TLS."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.guards import by_both
from tests.mixed.servers import APACHE, KEEPFAST, MixedEnsemble
from tests.mixed.test_mixed import restart, write_through

# Minutes where Java has to share a core.
pytestmark = [pytest.mark.conformance, pytest.mark.timeout(900)]


def test_guarded_ensemble__serves_under_leaders_of_both_kinds(tmp_path: Path) -> None:
    guard = by_both(tmp_path)
    kinds = {1: KEEPFAST, 2: APACHE, 3: APACHE}
    with MixedEnsemble(
        tmp_path, kinds, properties=guard.properties, configuration=guard.configuration
    ) as ensemble:
        ensemble.start()
        write_through(ensemble, "first", count=5)
        ensemble.assert_equal()
        ensemble.servers[3].stop()
        ensemble.place(3, KEEPFAST)
        restart(ensemble, 3)
        restart(ensemble, 2)
        ensemble.make_lead(3)
        ensemble.assert_equal()
