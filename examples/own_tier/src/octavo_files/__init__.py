"""A tier that keeps one plain file for each chunk: an example of a medium that Octavo does not know."""

from octavo_files.spec import FilesSpec
from octavo_files.tier import FilesTier

__all__ = ["FilesSpec", "FilesTier"]
