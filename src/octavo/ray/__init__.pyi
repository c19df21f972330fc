from .application import app as app
from .ingress import Ingress as Ingress
from .replica import EngineReplica as EngineReplica
from .request_router import OctavoRouter as OctavoRouter
