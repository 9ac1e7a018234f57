"""Imported once by the process from which those that run a test are forked: all that is slow to import."""

import importlib

from tests.mutations.catalogue import MUTATIONS

for module in {"hypothesis", "pytest", "pytest_trio", *(mutation.change.module for mutation in MUTATIONS)}:
    importlib.import_module(module)
