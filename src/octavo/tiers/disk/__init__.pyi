from . import layout as layout, summary as summary
from .cipher import RecordCipher as RecordCipher, find_cipher as find_cipher
from .clearing import (
    Cleared as Cleared,
    Selection as Selection,
    clear_directory as clear_directory,
    count_selected as count_selected,
)
from .config import DiskConfig as DiskConfig
from .inspection import (
    DirectoryContent as DirectoryContent,
    NamespaceContent as NamespaceContent,
    inspect_directory as inspect_directory,
    verify_directory as verify_directory,
)
from .io import DiskIO as DiskIO, Space as Space
from .marker import marker_name as marker_name, write_marker as write_marker
from .segment import segment_name as segment_name
from .spec import DiskSpec as DiskSpec, describe_copies as describe_copies
from .tier import DiskTier as DiskTier
