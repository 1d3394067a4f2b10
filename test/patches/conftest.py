"""Fixtures of the patch tests."""

from harness.upstream import upstream_wheel

__all__ = ["upstream_wheel"]
