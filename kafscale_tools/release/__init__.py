"""Makes a release of KafScale: ``make release VERSION=X.Y.Z``."""
