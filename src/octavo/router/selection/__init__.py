"""Selection without forwarding: for those who send requests to engines themselves, in process or over HTTP.

Inside:

    requests               what callers ask, and how it is read
    partition, catalogue   the workers: what they hold, how loaded they are
    reservations           what was sent to them
    service                `SelectionService`: workers, questions, reservations
    app, config, metrics   the service on a socket
"""
