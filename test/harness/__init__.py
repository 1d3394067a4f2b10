"""What every end-to-end test needs: a tiny target and draft on disk, and a server around them."""
