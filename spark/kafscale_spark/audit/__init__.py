"""Audits a whole bucket: counts its objects, and finds damaged and leftover ones."""
