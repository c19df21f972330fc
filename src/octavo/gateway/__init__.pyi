from .config import PickerConfig as PickerConfig
from .picker import Picked as Picked, Picker as Picker
from .server import PickerServer as PickerServer
