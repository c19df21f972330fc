"""What a server says of its work and of its end."""

import asyncio
import json
import logging
from dataclasses import replace

import pytest

from octavo.http import set_up_logs
from octavo.server import ServerConfig
from octavo.server.work_log import describe_work, tell_work
from octavo.tiers import TierState
from rigs.running_server import ENDLESS, LONG_CONTEXT, serving
from rigs.tier_report import REPORT


def test_a_line_says_what_was_done_between_two_looks(server, client):
    look = lambda: (server.ask(lambda engine: engine.snapshot()), REPORT)  # noqa: E731
    before = look()
    for _ in range(2):
        client.post("/v1/completions", json={"prompt": "v" * 64, "max_tokens": 5, "temperature": 0})
    now = look()
    line = describe_work(before, now, 2.0)
    assert line.startswith(
        "64 prompt tokens/s (38% from device); 5 output tokens/s; 0 running, 0 waiting; pool 0% in use"
    )
    assert line.endswith("memory 384 B of 640 B; disk 30 B of 100 B (off: no space left)")
    assert describe_work(now, now, 2.0) == "", "nothing was done"
    ((medium, disk),) = REPORT.status.tiers
    full = replace(REPORT.status, tiers=[(medium, replace(disk, state=TierState.OK))])
    line = describe_work(before, (now[0], REPORT._replace(status=full)), 2.0)
    assert line.endswith("disk 30 B of 100 B (takes nothing: no space left)")


def test_lines_end_with_the_engine(server, client, caplog):
    first = server.ask(lambda engine: engine.snapshot())
    client.post("/v1/completions", json={"prompt": "w" * 32, "max_tokens": 2})
    looks = iter([(first, None), (server.ask(lambda engine: engine.snapshot()), None), None])

    async def look():
        return next(looks)

    with caplog.at_level(logging.INFO):
        asyncio.run(tell_work(look, iter(range(10)).__next__, every_s=0))
    (line,) = [record.message for record in caplog.records if record.name == "octavo.server.work_log"]
    assert "prompt tokens/s" in line


def test_the_end_says_what_it_waits_for(model_folder, caplog):
    with (
        caplog.at_level(logging.INFO),
        serving(model_folder, max_model_len=LONG_CONTEXT, bounds={"shutdown_timeout_s": 0.01}) as server,
        server.client() as client,
        client.stream("POST", "/v1/completions", json={"prompt": "abc", **ENDLESS}) as response,
    ):
        lines = response.iter_lines()
        next(lines)
        server.ask_to_end()
        assert list(lines)
    of_the_end = ("octavo.http.signalled", "octavo.server.serving")
    told = [record.message for record in caplog.records if record.name in of_the_end]
    assert told[0] == "ends: waits up to 0.01 s for 1 request; a second Ctrl-C stops it"
    assert told[-1] == "ended"


@pytest.mark.usefixtures("restored_logs")
@pytest.mark.parametrize("name", ["octavo.server.test", "asyncio"])
@pytest.mark.parametrize("as_json", [False, True])
def test_lines_are_text_or_json(capsys, as_json, name):
    set_up_logs(ServerConfig(model_name="tiny", log_json=as_json, log_level="info"))
    logger = logging.getLogger(name)
    logger.debug("not this")
    logger.info("news of %d", 7)
    logger.warning("a worry")
    lines = capsys.readouterr().err.splitlines()
    if as_json:
        told = [json.loads(line) for line in lines]
        assert [(one["level"], one["message"]) for one in told] == [("info", "news of 7"), ("warning", "a worry")]
    else:
        assert [line.split(" ", 1)[1] for line in lines] == ["news of 7", "warning: a worry"]


@pytest.mark.usefixtures("restored_logs")
def test_a_name_that_somebody_else_chose_makes_no_lines_of_its_own(capsys):
    set_up_logs(ServerConfig(model_name="tiny", log_level="info"))
    logging.getLogger("octavo.server.test").info("engine a serves %s", "m\n12:00:00 ended\x1b[2J\x9b\u2028 café")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.split(" ", 1)[1] == "engine a serves m\\n12:00:00 ended\\x1b[2J\\x9b\\u2028 café"
