"""What a person configures: frozen structs that check themselves, and one sentence for each mistake.

    class DiskConfig(Settings):
        what = "disk tier"
        path: Path
        size_bytes: Size = msgspec.field(name="size")
        read_threads: Annotated[int, Meta(ge=1, le=64)] = 4

    DiskConfig.from_mapping({"path": "/nvme", "size": "8 apples"})
    InputError: disk tier: size: '8 apples' is not a size; write it like 40GiB, 512MiB or 80GB

The types say what is allowed, msgspec checks it, and `explain` makes a sentence with key, value and remedy of each of
msgspec's errors, for the bodies of requests too.
"""

from octavo.settings.complaints import Complaint, describe, explain
from octavo.settings.files import KeyStandsTwiceError, Written, load_yaml, read_text_file, read_yaml_file, without_texts
from octavo.settings.settings import Settings, joined_settings, texts_of
from octavo.settings.values import Count, Host, Seconds, SecondsFromZero, Secret, Size, read_path, with_home
from octavo.settings.words import shown, unknown_name

__all__ = [
    "Complaint",
    "Count",
    "Host",
    "KeyStandsTwiceError",
    "Seconds",
    "SecondsFromZero",
    "Secret",
    "Settings",
    "Size",
    "Written",
    "describe",
    "explain",
    "joined_settings",
    "load_yaml",
    "read_path",
    "read_text_file",
    "read_yaml_file",
    "shown",
    "texts_of",
    "unknown_name",
    "with_home",
    "without_texts",
]
