"""Commands that use the Admin service of a cluster."""
