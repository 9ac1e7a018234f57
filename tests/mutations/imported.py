"""Slow imports, made once by the process from which the processes of tests are forked."""

import importlib

from tests.mutations.catalogue import MUTATIONS

for module in {"hypothesis", "pytest", "pytest_trio", *(mutation.change.module for mutation in MUTATIONS)}:
    importlib.import_module(module)
