"""600 slow clients for a minute against ``anabranch run``: every call of the others is answered."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

FLOW = Path(__file__).with_name("endless_flow.py")


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_slow_clients_do_not_lock_others_out_of_a_pipeline() -> None:
    command = [sys.executable, "-m", "tests.http.slow_clients", "--flow", f"{FLOW}:flow"]
    options = ["--connections", "600", "--seconds", "60"]
    ran = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    print(ran.stdout)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert json.loads(ran.stdout)["closed"] > 0
