"""What holds for every test: how hypothesis searches."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# No deadline: on a shared machine a slow example says nothing about the code. What the search
# covers is bounded by max_examples, which each test may set for itself.
settings.register_profile(
    "local", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
# CI repeats the same examples, so that a red run can be repeated at home.
settings.register_profile("ci", settings.get_profile("local"), derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "local")
