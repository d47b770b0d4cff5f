"""Names and the placement of names in containers."""

import pytest
from hypothesis import given, settings, strategies as st

from pravega_spark.segment_ids import segment_id
from pravega_spark.streams.model import names

INT32 = st.integers(0, 2**31 - 1)
USER_NAMES = st.from_regex(r"[A-Za-z0-9.\-]{1,40}", fullmatch=True).filter(lambda name: name not in (".", ".."))


def test_segment_names_are_the_originals() -> None:
    assert names.segment_name("scope", "stream", segment_id(7, 3)) == "scope/stream/7.#epoch.3"
    assert names.parse_segment_name("scope/stream/7") == ("scope", "stream", 7)
    assert names.parse_segment_name("stream/7.#epoch.1") == ("", "stream", 1 << 32 | 7)


@settings(deadline=None)
@given(USER_NAMES, USER_NAMES, INT32, INT32)
def test_segment_names_round_trip(scope: str, stream: str, number: int, epoch: int) -> None:
    segment = segment_id(number, epoch)
    name = names.segment_name(scope, stream, segment)
    assert names.parse_segment_name(name) == (scope, stream, segment)
    assert names.indexed_segment_name(names.index_segment_name(name)) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "scope/stream",
        "scope/stream/",
        "scope/stream/x.#epoch.0",
        "scope/stream/1.#epoch.",
        "scope/stream/1.#epoch.0#index",
        "scope/stream/1.#epoch.0\n",
        "scope/stream/1/2.#epoch.0",
        "scope/stream/-1.#epoch.0",
        "scope/stream/٣.#epoch.0",
        "scope/stream/4294967296.#epoch.0",
    ],
)
def test_what_is_not_a_segment_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="segment"):
        names.parse_segment_name(name)


@pytest.mark.parametrize("name", ["scope/stream/0.#epoch.0", "#index", ""])
def test_what_is_not_an_index_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not an index segment name"):
        names.indexed_segment_name(name)


@pytest.mark.parametrize("name", ["a", "Z9.-", "...", "-", "a.b-c"])
def test_names_that_users_may_give(name: str) -> None:
    assert names.validate_scope_name(name) == name
    assert names.validate_stream_name(name) == name
    assert names.validate_stored_name(name) == name
    assert names.validate_stored_name("_" + name) == "_" + name


@pytest.mark.parametrize("name", ["", ".", "..", "a_b", "_a", "a/b", "a\\b", "a b", "é", "٣", "a\n", "a\0", "a%2e"])
def test_names_that_users_may_not_give(name: str) -> None:
    for validate in (names.validate_scope_name, names.validate_stream_name):
        with pytest.raises(ValueError, match=r"^The (scope|stream) name .*: use a to z"):
            validate(name)


@pytest.mark.parametrize("name", ["", ".", "..", "_", "__a", "a/b", "a\n"])
def test_names_that_nothing_may_carry(name: str) -> None:
    with pytest.raises(ValueError, match=r"^The scope or stream name "):
        names.validate_stored_name(name)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("My Scope", "The scope name 'My Scope' has the character ' '"),
        ("a_b c_d!", "The scope name 'a_b c_d!' has the characters '_', ' ', '!'"),
        ("my_scope", "The scope name 'my_scope' has the character '_'"),
        ("Zoë", "The scope name 'Zoë' has the character 'ë'"),
        ("", "The scope name '' is empty"),
        ("..", "The scope name '..' stands for a folder"),
    ],
)
def test_what_is_wrong_with_a_name_is_told(name: str, told: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - its message is looked at
        names.validate_scope_name(name)
    assert str(caught.value) == f"{told}: use a to z, A to Z, digits, '.' and '-' only."


def test_names_have_a_longest_length() -> None:
    assert names.validate_scope_name("s" * 255)
    assert names.validate_stream_name("s" * 250)
    with pytest.raises(ValueError, match="at most 255"):
        names.validate_scope_name("s" * 256)
    with pytest.raises(ValueError, match="at most 250"):
        names.validate_stream_name("s" * 251)


@pytest.mark.parametrize(
    ("name", "containers"),
    [
        ("scope/stream/0", (0, 3, 3, 3)),
        ("scope/stream/1", (0, 3, 5, 15)),
        ("scope/stream/2", (0, 1, 6, 12)),
        ("examples/streamprocessing1/0", (0, 0, 5, 13)),
    ],
)
def test_containers_are_the_originals(name: str, containers: tuple[int, ...]) -> None:
    assert tuple(names.container_of(name, count) for count in (1, 4, 8, 16)) == containers


@settings(deadline=None)
@given(USER_NAMES, USER_NAMES, INT32, INT32, st.integers(1, 1000))
def test_everything_of_a_segment_number_shares_a_container(
    scope: str, stream: str, number: int, epoch: int, count: int
) -> None:
    container = names.container_of(f"{scope}/{stream}/{number}", count)
    name = names.segment_name(scope, stream, segment_id(number, epoch))
    transaction = f"{name}#transaction.{'0123456789abcdef' * 2}"
    transient = f"{name}#transient.{'0' * 32}.{'f' * 32}"
    related = [name, f"{name}#index", f"{name}$attributes.index", transaction, transient]
    assert {names.container_of(other, count) for other in related} == {container}
    assert 0 <= container < count


def test_more_containers_move_names_to_new_containers_only() -> None:
    for number in range(200):
        name = f"scope/stream{number}"
        before, after = names.container_of(name, 10), names.container_of(name, 11)
        assert after in (before, 10)


@pytest.mark.parametrize("suffix", [f"#transaction.{'a' * 32}", f"#transient.{'a' * 32}.{'0' * 32}"])
def test_what_belongs_to_an_old_segment_name_shares_its_container(suffix: str) -> None:
    assert names.container_of("scope/stream/1" + suffix, 1000) == names.container_of("scope/stream/1", 1000)


@pytest.mark.parametrize("count", [0, -1])
def test_no_containers_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        names.container_of("scope/stream", count)
