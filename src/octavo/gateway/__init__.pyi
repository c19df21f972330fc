from .config import PickerConfig as PickerConfig
from .picker import Picked as Picked, PickedEngine as PickedEngine, Picker as Picker
from .server import PickerServer as PickerServer
