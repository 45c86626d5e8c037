"""A store in a bucket: objects packed, and cached on this machine."""
