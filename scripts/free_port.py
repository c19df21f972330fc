"""Prints a free TCP port of 127.0.0.1 for a server that a script starts.

It lies below the ports that Linux gives to outgoing connections, so that none of these takes it before the server does.
"""

import random
import socket

while True:
    port = random.randrange(15_000, 32_000)
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            continue
    print(port)
    break
