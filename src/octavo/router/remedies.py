"""What a person does who has told too little of an engine, in the words of the place where engines are told."""

from typing import NamedTuple


class Remedies(NamedTuple):
    """One for each thing that may be missing."""

    events: str
    replay: str
    seed: str


OF_ADDRESSES = Remedies(
    events=(
        "start octavo serve with --kv-events; of vLLM, name them here as URL,events=tcp://HOST:PORT,"
        "replay=tcp://HOST:PORT"
    ),
    replay="start octavo serve with --kv-events-replay; of vLLM, name it here as replay=tcp://HOST:PORT",
    seed="name its seed here, as URL,seed=SEED",
)
OF_WORKERS = Remedies(
    events="tell their endpoint as `endpoint` of /register, or as `kv_events_endpoints` of /workers",
    replay="tell its endpoint as `replay_endpoint`",
    seed="tell its seed as `hash_seed`",
)
