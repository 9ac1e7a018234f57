"""Snapshots of the metadata in the bucket, and the metadata made anew from them and from what the bucket holds."""
