from rigs.one_server import client, model_folder, official, server

__all__ = ["client", "model_folder", "official", "server"]
