"""What is sent beyond the protocol, server by server."""

import pytest

from pytest_llmspeed.engines.servers.recipes import KNOWN_FIELDS, RECIPES, vendor_fields_of
from pytest_llmspeed.metrics.exchange import Request
from pytest_llmspeed.transport.vendor_fields import VendorFields

FORCED = {
    "vllm": {"ignore_eos": True, "min_tokens": 64},
    "sglang": {"ignore_eos": True, "min_tokens": 64},
    "tensorrt_llm": {"ignore_eos": True, "min_tokens": 64},
    "llamacpp": {"ignore_eos": True},
    "me": {"min_tokens": 64},
}


@pytest.mark.parametrize("owner", KNOWN_FIELDS)
def test_a_length_is_forced_by_the_server_s_own_means(owner):
    """Only where it is asked for: max_tokens alone forces nothing."""
    known = vendor_fields_of(owner)
    forced = known.fields(Request("x", output_tokens=64))
    assert forced == {**FORCED[owner], **known.plain}
    assert known.fields(Request("x", max_tokens=64)) == known.plain


@pytest.mark.parametrize("owner", ["vllm", "sglang"])
def test_a_salt_keeps_each_request_from_the_cache(owner):
    """Another one each time, and none unless a cold cache is wanted."""
    known, request = vendor_fields_of(owner), Request("x")
    salts = {known.fields(request, cold=True)["cache_salt"] for _ in range(20)}
    assert len(salts) == 20
    assert "cache_salt" not in known.fields(request)


def test_token_ids_are_asked_for_where_they_are_wanted():
    """Of the servers that know how."""
    wanted = Request("x", wants_token_ids=True)
    asked = {owner for owner in KNOWN_FIELDS if "return_token_ids" in vendor_fields_of(owner).fields(wanted)}
    assert asked == {"vllm"}
    assert "return_token_ids" not in vendor_fields_of("vllm").fields(Request("x"))


def test_llama_cpp_is_told_not_to_use_its_cache():
    """A switch of the request."""
    assert vendor_fields_of("llamacpp").fields(Request("x"), cold=True)["cache_prompt"] is False


def test_sampling_has_a_seed():
    """One that is always the same, where the server is known to take one."""
    assert vendor_fields_of("vllm").fields(Request("x", temperature=0.7))["seed"] == 0
    assert vendor_fields_of("openai").fields(Request("x", temperature=0.7)) == {}


@pytest.mark.parametrize("owner", [None, "", "openai", "library", "None"])
def test_of_an_unknown_server_nothing_is_asked_beyond_the_protocol(owner):
    """A field that a server does not know may be an error."""
    assert vendor_fields_of(owner).fields(Request("x", output_tokens=64), cold=True) == {}


def test_a_field_that_is_an_object_goes_as_it_stands() -> None:
    """Placeholders are words; what an engine is always sent may be nested."""
    nested = {"stream_options": {"include_usage": True}}
    assert VendorFields("a server of ours", plain=nested).fields(Request("hello")) == nested


def test_each_server_that_is_started_here_is_known_by_a_name_of_its_own() -> None:
    """The recipes are the only table: a server at a URL is asked as one that was started here."""
    assert len(KNOWN_FIELDS) == len(RECIPES)
    assert "" not in KNOWN_FIELDS
