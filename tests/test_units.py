import pytest

from octavo.errors import InputError
from octavo.units import (
    counted,
    find_count,
    format_age,
    format_bytes,
    format_least,
    parse_bytes,
    parse_seconds,
    parse_tokens,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("40GiB", 40 << 30),
        ("40g", 40 << 30),
        ("80GB", 80 * 10**9),
        ("1.5 MiB", 3 << 19),
        ("1048576", 1 << 20),
        ("17b", 17),
        ("2TiB", 2 << 40),
    ],
)
def test_sizes(text, expected):
    assert parse_bytes(text) == expected


@pytest.mark.parametrize(("text", "expected"), [("128k", 131072), ("1m", 1 << 20), ("4096", 4096), ("0.5k", 512)])
def test_tokens(text, expected):
    assert parse_tokens(text) == expected


@pytest.mark.parametrize("text", ["", "GiB", "-1GiB", "40 gibbons", "0", "1e9", "0.1", "nan", "9" * 40, "٣"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(InputError):
        parse_bytes(text)


@pytest.mark.parametrize("text", ["8388608TiB", "99999999999.5TiB", "9" * 18 + "kB"])
def test_a_size_that_no_system_counts_is_refused(text):
    with pytest.raises(InputError, match="is too large; it must be below 8 EiB"):
        parse_bytes(text)
    assert parse_bytes("8388607TiB") == (1 << 63) - (1 << 40)


def test_a_small_number_without_a_unit_is_asked_about():
    with pytest.raises(InputError, match="'16' has no unit: write 16GiB, 16MiB, or 16B if bytes are meant"):
        parse_bytes("16")


@pytest.mark.parametrize("text", ["", "-5", "128g", "0", "inf"])
def test_what_is_no_number_of_tokens_is_refused(text):
    with pytest.raises(InputError):
        parse_tokens(text)


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(0, "0 B"), (512, "512 B"), (1536, "1.5 KiB"), (40 << 30, "40 GiB"), (78796800, "75.1 MiB"), (1 << 42, "4 TiB")],
)
def test_bytes_are_short_to_read(num_bytes, text):
    assert format_bytes(num_bytes) == text


@pytest.mark.parametrize(("text", "seconds"), [("60s", 60), ("90", 90), ("2m", 120), ("1.5h", 5400)])
def test_times(text, seconds):
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["soon", "", "-1s", "1w", "inf", "1 2"])
def test_what_is_no_time(text):
    with pytest.raises(InputError, match="is not a time; write it like 60s"):
        parse_seconds(text)


@pytest.mark.parametrize("text", ["", "-1", "+1", "1_000", " 1", "1.0", "²", "٣", "9" * 19, "9" * 5000])
def test_what_is_no_count(text):
    assert find_count(text) is None


@pytest.mark.parametrize(("text", "count"), [("0", 0), ("00000012", 12), ("9" * 18, 10**18 - 1)])
def test_counts(text, count):
    assert find_count(text) == count


def test_one_of_anything_is_told_as_one():
    told = [counted(number, "segment") for number in (0, 1, 2, 1000)]
    assert told == ["0 segments", "1 segment", "2 segments", "1,000 segments"]


@pytest.mark.parametrize(
    ("num_bytes", "text"), [(1, "1 KiB"), (57_345, "57 KiB"), (16 << 20, "16 MiB"), ((16 << 20) + 1, "17 MiB")]
)
def test_a_size_that_is_enough_can_be_typed(num_bytes, text):
    assert format_least(num_bytes) == text
    assert parse_bytes(text) >= num_bytes


@pytest.mark.parametrize(
    ("seconds", "text"), [(-5, "0 s"), (59, "59 s"), (60, "1 min"), (7199, "1 h"), (86400, "1 d"), (10**6, "11 d")]
)
def test_ages_are_short_to_read(seconds, text):
    assert format_age(seconds) == text
