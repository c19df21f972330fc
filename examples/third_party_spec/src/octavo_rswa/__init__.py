"""Reference sliding-window attention for Octavo."""

from octavo_rswa.manager import ReferenceWindowManager
from octavo_rswa.platform import ReferenceWindowPlatform
from octavo_rswa.spec import ReferenceWindowSpec

__all__ = ["ReferenceWindowManager", "ReferenceWindowPlatform", "ReferenceWindowSpec"]
