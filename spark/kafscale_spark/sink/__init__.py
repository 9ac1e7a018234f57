"""Writes topics: tasks stage encoded records, and the driver commits all of them at once."""
