"""The console: a cluster in a browser. It asks gateways, as operators and clients do, and opens no store itself."""
