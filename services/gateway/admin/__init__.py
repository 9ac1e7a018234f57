"""The Admin service, by which operators inspect and change a cluster."""
