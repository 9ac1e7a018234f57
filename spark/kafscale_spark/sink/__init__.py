"""Writing topics: tasks stage what they encode, the driver commits all of it at once."""
