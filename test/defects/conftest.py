"""Fixtures of the defect tests."""

from harness.trees import trees
from harness.upstream import upstream_wheel

__all__ = ["trees", "upstream_wheel"]
