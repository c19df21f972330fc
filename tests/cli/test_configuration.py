"""Settings of `octavo serve` and `octavo route`: flags over environment over file, and a sentence for each mistake."""

from pathlib import Path

import pytest

from octavo.cli.settings.setting import CATALOGUES, EPP, ROUTE, SERVE
from octavo.cli.settings.sources import gather_settings, picker_settings_from, router_settings_from, settings_from
from octavo.cli.settings.text import kinds_of
from octavo.errors import InputError
from octavo.hashing import DEFAULT_ALGORITHM, HASH_ALGORITHMS
from octavo.units import parse_bytes

FILE = """
engine: {dtype: auto, device_memory: 80%, max_model_len: 32k, max_num_seqs: 8}
server: {port: 8001, api_key: secret}
offload:
  memory: 16GiB
  disk: {path: /var/cache/octavo, size: 1GiB, wait_seconds: 60}
  blocks_per_chunk: {full_attention: 16}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "serve.yaml"
    path.write_text(FILE)
    return path


def test_flags_count_more_than_variables_and_these_more_than_the_file(file):
    environment = {"OCTAVO_MAX_NUM_SEQS": "7", "OCTAVO_PORT": "8002", "OTHER": "x"}
    given = gather_settings(SERVE, {"server.port": "8003", "server.host": None}, environment, file)
    settings = settings_from(given, folder=Path("model"), model_name="model")
    assert (settings.engine.max_num_seqs, settings.server.port, settings.engine.max_model_len) == (7, 8003, 32768)
    assert {given[key].source for key in ("server.port", "engine.max_num_seqs", "engine.dtype")} == {
        "--port",
        "OCTAVO_MAX_NUM_SEQS",
        f"{file}: engine.dtype",
    }
    assert settings.offload is not None
    assert settings.offload.memory == 16 << 30
    (disk,) = settings.offload.tiers
    assert (disk.config.wait_s, disk.config.size_bytes) == (60, 1 << 30)


@pytest.mark.parametrize(
    ("flag", "text", "value"),
    [
        ("--device-memory", "3GiB", 3 << 30),
        ("--device-memory", "12.5%", "12.5%"),
        ("--max-model-len", "32k", 32768),
        ("--send-timeout", "2m", 120.0),
        ("--prefix-caching", "no", False),
        ("--allowed-host", "a.example, b.example", ["a.example", "b.example"]),
        ("--api-key", "123", "123"),
        ("--blocks-per-chunk", "{default: 4}", {"default": 4}),
        ("--tiers", "[{type: disk, path: /x, size: 1GiB}]", [{"type": "disk", "path": "/x", "size": "1GiB"}]),
        ("--store", "on_eviction", "on_eviction"),
        ("--port", "08010", 8010),
        ("--port", "010", 10),
    ],
)
def test_text_stands_for_any_kind_of_value(flag, text, value):
    setting = next(setting for setting in SERVE.settings.values() if setting.flag == flag)
    assert setting.check(text, name=flag) == value


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("engine: {max_num_sqs: 3}", "engine: unknown setting 'max_num_sqs'; did you mean 'max_num_seqs'?"),
        ("ruoter: {}", "unknown section 'ruoter'; did you mean 'router'? there are: router"),
        ("{engine: {}, router: {}}", "router is a section of octavo route: leave it out for octavo serve"),
        ("engine: {dtype: [}", "expected the node content, but found '}' at line 1, column 18"),
        ("engin: {}", "unknown section 'engin'; did you mean 'engine'?"),
        ("port: 8001", "port is a setting of server: write it below server, such as {server: {port: ...}}"),
        ("{engine: {max_num_seqs: 3}, disk: {path: /x}}", "disk is a setting of offload: write it below offload"),
        ("engine: {max_num_seqs: 0}", "engine.max_num_seqs must be a whole number of 1 or more, not 0"),
        ("engine: {device_memory: 800%}", "engine.device_memory must be a size such as 8GiB, or a share"),
        ("engine: {device_memory: 0.0%}", "engine.device_memory must be a size such as 8GiB, or a share"),
        ("engine: 3", "engine must be keys and values, not 3"),
        ("engine: {max_num_seqs: 5000}", "max_num_seqs = 5000 is more than max_step_tokens = 2048"),
        ("offload: {disk: {size: 3GiB}}", "offload.disk.size needs --disk"),
        ("offload: {disk: 3}", "offload.disk must be keys and values"),
        ("offload: {tiers: [{type: disk, pth: 3}]}", "unknown setting 'pth'; did you mean 'path'?"),
        ("offload: {policy: fifo}", "policy 'fifo' is not known"),
        ("router: {engine: [{a: 1, b: [02]}]}", "router.engine[0] must be text, not {'a': 1, 'b': [2]}"),
        ("[1]", "must hold keys and values with settings"),
    ],
)
def test_a_mistake_in_a_file_is_one_sentence(octavo, tmp_path, text, complaint):
    file = tmp_path / "serve.yaml"
    file.write_text(text)
    ran = octavo("config", "check", file)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert str(file) in ran.err
    assert complaint in ran.err


ODD_TEXTS = (
    "010 08 0 1:30 1:30.5 0b11 1_000 1_0.5 0o17 0x10 16 +7 1e3 1.5e+3 .5 on no Yes true 2001-01-01 2001-13-45 2m 1GiB"
)


@pytest.mark.parametrize("text", ODD_TEXTS.split())
def test_a_text_in_a_file_means_what_it_means_as_a_flag(tmp_path, text):
    """Or both refuse it. To YAML, 010 is 8, 1:30 is 90 and no is false."""
    file = tmp_path / "any.yaml"

    def read(catalogue, flags, from_file):
        try:
            return gather_settings(catalogue, flags, {}, from_file)[setting.key].value
        except InputError as error:
            return str(error).replace(f"{file}: {setting.key}", "NAME").replace(setting.flag, "NAME")

    for catalogue in CATALOGUES:
        for setting in catalogue.settings.values():
            document: object = text
            for name in reversed(setting.key.split(".")):
                document = f"{{{name}: {document}}}"
            file.write_text(str(document))
            as_flag = read(catalogue, {setting.key: text}, None)
            assert repr(read(catalogue, {}, file)) == repr(as_flag), setting.key


def test_a_seed_and_a_list_in_a_file_are_as_they_were_typed(tmp_path):
    file = tmp_path / "serve.yaml"
    file.write_text("{engine: {hash_seed: 0123}, server: {api_key: 0x1F, allowed_host: [10, 0x1F, no]}}")
    given = gather_settings(SERVE, {}, {}, file)
    assert given["engine.hash_seed"].value == "0123"
    assert given["server.api_key"].value == "0x1F"
    assert given["server.allowed_host"].value == ["10", "0x1F", "no"]


def test_numbers_within_a_value_are_decimal(tmp_path):
    file = tmp_path / "serve.yaml"
    file.write_text("offload: {memory: 1GiB, blocks_per_chunk: {default: 010, mamba: 0x10}}")
    assert gather_settings(SERVE, {}, {}, file)["offload.blocks_per_chunk"].value == {"default": 10, "mamba": 16}
    file.write_text("offload: {memory: 1GiB, blocks_per_chunk: {default: 1:30}}")
    with pytest.raises(InputError, match=r"blocks_per_chunk.default must be a whole number .*, not '1:30'"):
        gather_settings(SERVE, {}, {}, file)


def test_a_key_that_stands_twice_in_a_value_is_refused():
    setting = next(setting for setting in SERVE.settings.values() if setting.flag == "--blocks-per-chunk")
    with pytest.raises(InputError, match=r"--blocks-per-chunk: .*'mamba' stands twice"):
        setting.check("{mamba: 1, default: 4, mamba: 2}", name="--blocks-per-chunk")
    with pytest.raises(InputError, match=r"OCTAVO_TIERS: .*'path' stands twice"):
        gather_settings(SERVE, {}, {"OCTAVO_TIERS": "[{type: disk, path: /x, path: /y}]"}, None)


def test_text_with_a_tag_of_yaml_is_text():
    setting = next(setting for setting in SERVE.settings.values() if setting.flag == "--tiers")
    with pytest.raises(InputError, match=r"--tiers must be .*, not '!abc'"):
        setting.check("!abc", name="--tiers")


@pytest.mark.parametrize("arguments", [("serve", "--tiny", "llama"), ("route",), ("select",), ("epp",)])
def test_a_host_that_is_left_empty_does_not_open_a_server_to_all(octavo, arguments):
    """As of `--host "$HOST"` where nobody has set HOST."""
    ran = octavo(*arguments, "--host", "")
    assert (ran.code, ran.out) == (2, "")
    assert "--host must be an address such as 127.0.0.1, or 0.0.0.0 for all, not ''" in ran.err


@pytest.mark.parametrize("text", ["", " ", "1:30"])
def test_what_a_file_would_read_as_another_number_is_refused_as_it_was_typed(text):
    """YAML has null for nothing, and 90 for 1:30."""
    with pytest.raises(InputError, match=f"OCTAVO_PORT must be a whole number from 0 to 65535, not '{text}'"):
        gather_settings(SERVE, {}, {"OCTAVO_PORT": text}, None)


def test_a_wrong_variable_is_named():
    with pytest.raises(InputError, match="OCTAVO_PORT must be a whole number from 0 to 65535, not 'x'"):
        gather_settings(SERVE, {}, {"OCTAVO_PORT": "x"}, None)


def test_sections_that_do_not_go_together(octavo, tmp_path):
    file = tmp_path / "serve.yaml"
    file.write_text("{engine: {prefix_caching: false}, offload: {memory: 1GiB}}")
    ran = octavo("config", "check", file)
    assert (ran.code, "without prefix caching nothing is stored" in ran.err) == (2, True)


def test_every_hash_algorithm_can_be_chosen():
    setting = SERVE.settings["engine.hash_algorithm"]
    assert (sorted(setting.choices), setting.default) == (sorted(HASH_ALGORITHMS), DEFAULT_ALGORITHM)


def test_a_file_that_is_good(octavo, file):
    assert octavo("config", "check", file).out == f"{file}: 11 settings, nothing wrong\n"


def test_what_is_shown_is_a_file_that_says_the_same(octavo, file, tmp_path, monkeypatch):
    monkeypatch.setenv("OCTAVO_MAX_WAITING", "9")
    shown = octavo("config", "show", "--config", file).out
    lines = [line.split() for line in shown.splitlines()]
    assert ["max_waiting:", "9", "#", "OCTAVO_MAX_WAITING"] in lines
    assert ["port:", "8001", "#", str(file)] in lines
    assert ["host:", "127.0.0.1", "#", "default"] in lines
    assert "secret" not in shown
    again = tmp_path / "again.yaml"
    again.write_text(shown)
    monkeypatch.delenv("OCTAVO_MAX_WAITING")
    first, second = (
        {key: one.value for key, one in gather_settings(SERVE, {}, {}, path).items() if key != "server.api_key"}
        for path in (file, again)
    )
    assert {key: second[key] for key in first} == first
    assert second["engine.max_waiting"] == 9


@pytest.mark.parametrize(
    "name", ["[a", "@a", "*a", "%a", "{a", "a: b", "a #b", " a", "null", "1", "it's", "é", "a\n b", "\x1b", "a" * 99]
)
def test_every_text_is_shown_as_a_file_has_it(octavo, tmp_path, monkeypatch, name):
    monkeypatch.setenv("OCTAVO_SERVED_MODEL_NAME", name)
    shown = octavo("config", "show").out
    again = tmp_path / "again.yaml"
    again.write_text(shown)
    assert gather_settings(SERVE, {}, {}, again)["server.served_model_name"].value == name


@pytest.mark.parametrize("size", ["1500MB", "1536MiB", "1234567891B", "1.3GiB"])
def test_a_size_is_shown_to_the_byte(octavo, tmp_path, monkeypatch, size):
    monkeypatch.setenv("OCTAVO_MAX_BODY", size)
    again = tmp_path / "again.yaml"
    again.write_text(octavo("config", "show").out)
    assert gather_settings(SERVE, {}, {}, again)["server.max_body_bytes"].value == parse_bytes(size)


def test_a_router_is_told_in_the_same_way(octavo, tmp_path):
    file = tmp_path / "route.yaml"
    file.write_text("router: {engine: ['http://a:1,name=x', 'http://b:2'], port: 9000, log_json: true}")
    assert octavo("config", "check", file).out == f"{file}: 3 settings, nothing wrong\n"
    given = gather_settings(
        ROUTE, {"router.port": "9001"}, {"OCTAVO_KEEP_ALIVE": "7", "OCTAVO_ENGINE": "http://c:3,keys=k"}, file
    )
    config = router_settings_from(given)
    assert (config.port, config.keep_alive_s, config.log_json) == (9001, 7, True)
    assert config.engines == ("http://c:3", "keys=k")
    file.write_text("router: {prot: 1}")
    assert "unknown setting 'prot'; did you mean 'port'?" in octavo("config", "check", file).err


def test_an_endpoint_picker_too(octavo, tmp_path):
    file = tmp_path / "epp.yaml"
    file.write_text("picker: {engine: ['http://a:1'], fallbacks: 0}")
    assert octavo("config", "check", file).out == f"{file}: 2 settings, nothing wrong\n"
    config = picker_settings_from(gather_settings(EPP, {"picker.port": "9009"}, {}, file))
    assert (config.engines, config.port, config.fallbacks) == (("http://a:1",), 9009, 0)
    file.write_text("picker: {engine: ['http://a:1'], tls_key: key.pem}")
    assert "TLS needs a certificate and its key" in octavo("config", "check", file).err


def test_every_setting_says_what_it_is():
    assert [key for one in CATALOGUES for key, setting in one.settings.items() if not setting.text] == []


def bounds_of(kind):
    """The least and the most that numbers of a type may be, as a sentence may name them."""
    for one in kinds_of(kind):
        for bound in (getattr(one, name, None) for name in ("ge", "gt", "le", "lt")):
            if bound is not None:
                yield f"{bound:.15g}"


def test_the_refusal_of_a_setting_says_what_is_allowed():
    """Both bounds of a number; and how a list or a mapping is written."""
    settings = [setting for one in CATALOGUES for setting in one.settings.values()]
    for setting in settings:
        bounds = [] if setting.description.startswith("a size") else bounds_of(setting.field.type)
        assert all(bound in setting.description for bound in bounds), setting.key
        is_written_as_yaml = setting.description.startswith(("a list", "a mapping")) and not setting.is_repeated
        assert not is_written_as_yaml or "such as" in setting.description, setting.key
    assert any(setting.description.endswith("at most 1000000000") for setting in settings)
