from rigs.one_server import client, model_folder, server

__all__ = ["client", "model_folder", "server"]
