"""Slow imports, made once by the process from which the processes of tests are forked."""

import gc
import importlib
from importlib.metadata import entry_points

from tests.mutations.catalogue import MUTATIONS

for plugin in entry_points(group="pytest11"):
    plugin.load()
for module in sorted(
    {mutation.change.module for mutation in MUTATIONS}
    | {mutation.test.partition(".py::")[0].replace("/", ".") for mutation in MUTATIONS}
):
    importlib.import_module(module)
# pytest collects garbage after each run, which would traverse all that was imported here.
gc.freeze()
