"""The files in examples/policies: their form, what they grant, and that the documentation names each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.policies import FOLDER, PROVIDERS, ROLES, HttpRequest, Need, policy, rights_in

PAGE = Path(__file__).resolve().parents[2] / "docs/backends.md"
LOG = "arn:aws:s3:::b/streams/_system/containers/3/wal/0/1"
KEYS = {
    "s3": {"Version", "Statement"},
    "gcs": {"title", "description", "stage", "includedPermissions"},
    "azure": {
        "Name",
        "IsCustom",
        "Description",
        "Actions",
        "NotActions",
        "DataActions",
        "NotDataActions",
        "AssignableScopes",
    },
}


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_form_of_each_file(provider: str, role: str) -> None:
    file = FOLDER / f"{provider}-{role}.json"
    assert json.loads(file.read_text("utf-8")).keys() == KEYS[provider]
    assert file.name in PAGE.read_text("utf-8")
    assert not any("*" in right for right in rights_in(provider, role)), "each right by its name"


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_role_has_the_rights_of_those_before_it(provider: str) -> None:
    reader, writer, maintainer = (rights_in(provider, role) for role in ROLES)
    assert reader < writer < maintainer
    deleting, creating = ("delete",), ("create", "put", "add", "write")
    assert not [right for right in reader | writer if any(word in right.lower() for word in deleting)]
    assert not [right for right in reader if any(word in right.lower() for word in creating)]


def test_the_letters_of_a_sas_are_in_the_table() -> None:
    letters = policy("azure-sas", "")
    assert set(letters["reader"]) < set(letters["writer"]) < set(letters["maintainer"])
    assert all(f"| `{letters[role]}` |" in PAGE.read_text("utf-8") for role in ROLES)


@pytest.mark.parametrize(
    ("role", "need", "allowed"),
    [
        ("reader", Need("s3:GetObject", "arn:aws:s3:::b/streams/a"), True),
        ("reader", Need("s3:GetObject", "arn:aws:s3:::b/streamsother/a"), False),
        ("reader", Need("s3:GetObject", "arn:aws:s3:::c/streams/a"), False),
        ("reader", Need("s3:PutObject", "arn:aws:s3:::b/streams/a"), False),
        ("writer", Need("s3:PutObject", "arn:aws:s3:::b/streams/s/t/0.chunk"), True),
        ("writer", Need("s3:PutObject", LOG), False),
        ("writer", Need("s3:PutObject", LOG, (("s3:if-none-match", "*"),)), True),
        ("writer", Need("s3:PutObject", "arn:aws:s3:::b/streams/_system/pravega.json"), False),
        ("writer", Need("s3:DeleteObject", "arn:aws:s3:::b/streams/s/t/0.chunk"), False),
        ("maintainer", Need("s3:DeleteObject", LOG), True),
        ("maintainer", Need("s3:PutObject", LOG), False),
        ("maintainer", Need("s3:DeleteObject", "arn:aws:s3:::b/other"), False),
    ],
)
def test_what_s3_would_decide(role: str, need: Need, allowed: bool) -> None:
    assert PROVIDERS["s3"](role, "b", "streams").allows(need) is allowed


def test_a_read_of_an_absent_object_needs_the_right_to_list() -> None:
    needs = PROVIDERS["s3"]("reader", "b", "streams").needs(HttpRequest("GET", "/b/streams/a", {}))
    assert [need.right for need in needs] == ["s3:GetObject", "s3:ListBucket"]
    assert needs[1].context == (), "it has no s3:prefix"
