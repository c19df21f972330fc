"""The file of tenants' keys: what is wrong in it is told, and no key with it."""

import pytest

from octavo.errors import InputError
from octavo.http import read_tenants

GOOD = "- {key: sk-a, tenant: a, quota: 1GiB}\n- {key: sk-b, tenant: a, quota: 1GiB}\n- {key: sk-c, tenant: c}\n"


@pytest.fixture
def file(tmp_path):
    def write(text, mode=0o600):
        path = tmp_path / "keys.yaml"
        path.write_bytes(text.encode("latin-1"))
        path.chmod(mode)
        return path

    return write


def test_a_tenant_may_have_several_keys(file):
    tenants = read_tenants(file(GOOD))
    assert [(tenant.key, tenant.tenant, tenant.quota) for tenant in tenants] == [
        ("sk-a", "a", 1 << 30),
        ("sk-b", "a", 1 << 30),
        ("sk-c", "c", None),
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "write a list of keys"),
        ("key: sk-a", "write a list of keys"),
        ("- sk-a", "entry 1: write a mapping"),
        ("- {tenant: a}", "entry 1: .*key"),
        ("- {key: sk-a}", "entry 1: .*tenant"),
        ("- {key: sk-a, tenant: ''}", "entry 1: tenant must"),
        ("- {key: sk-a, tenant: a, quota: lots}", "entry 1: quota: 'lots' is not a size"),
        ("- {key: 'sk- a', tenant: a}", "entry 1: key must be printable ASCII"),
        ("- {key: 12345, tenant: a}", "entry 1: key must be .*, not what was given"),
        ("- {key: sk-a, tenant: a}\n- {key: sk-a, tenant: b}", "entry 2: its key is another entry's too"),
        (f"{GOOD}- {{key: sk-d, tenant: a, quota: 2GiB}}", "a has two quotas"),
        ("- {key: sk-a, tenant: a, key: sk-b}", "a name stands twice"),
        ("- {key: sk-a", "this is no YAML"),
        ("- {key: sk-\xe9, tenant: a}", "this is no YAML"),
        ("- " + "[" * 5000, "this is no YAML"),
        ("- key: sk-a\n  tenant: " + "a" * (1 << 20), "has more than 1,048,576 bytes"),
    ],
)
def test_what_is_wrong_is_told_without_a_key(file, text, complaint):
    with pytest.raises(InputError, match=complaint) as refused:
        read_tenants(file(text))
    told = str(refused.value).replace("sk-7f3a", "")  # the example
    assert "sk-" not in told
    assert "12345" not in told


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_file_that_others_may_read_is_refused(file, mode):
    with pytest.raises(InputError, match="chmod 600"):
        read_tenants(file(GOOD, mode))


def test_what_cannot_be_read_is_told(tmp_path):
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(InputError, match=f"{path}: cannot be read"):
            read_tenants(path)
