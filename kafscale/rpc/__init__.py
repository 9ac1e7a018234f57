import os

# Read when gRPC is loaded. What its C core writes to standard error is no log entry, and comes as an exception anyway.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
