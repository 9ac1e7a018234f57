"""What the options of commands that read and write records mean: connections, and formats of records."""
