"""The commands that ask a cluster, by its Admin service."""
