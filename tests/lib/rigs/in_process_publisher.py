"""`InProcessPublisher`: hands an engine's batches of events to functions, in the engine's own thread."""

from octavo.events import Volume


class InProcessPublisher:
    endpoints = ()
    published = replay_bounds = Volume(0, 0)

    def __init__(self):
        self._subscribers = []

    def subscribe(self, subscriber):
        self._subscribers.append(subscriber)

    def publish(self, batch):
        for subscriber in self._subscribers:
            subscriber(batch)

    def close(self):
        self._subscribers.clear()
