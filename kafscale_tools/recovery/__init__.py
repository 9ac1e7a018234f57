"""Snapshots of the metadata in the bucket, and rebuilding the metadata from them and from the objects in the bucket."""
