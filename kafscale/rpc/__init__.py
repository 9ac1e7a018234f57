import os

# Read when gRPC is loaded. Its C core would write unstructured lines to standard error; errors are raised anyway.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
