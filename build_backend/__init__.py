"""The build of the fork."""
