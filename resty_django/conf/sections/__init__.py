"""The dataclasses of the sections, which the parts of the package read through `conf`."""
