"""The official OpenAI client against the model server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import openai
import pytest

from support.model_server import ModelServer


@pytest.fixture
async def sdk(torch_server: ModelServer) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=torch_server.url + "/v1", api_key="none", max_retries=0
    ) as client:
        yield client


async def test_it_lists_the_model_and_completes(sdk: openai.AsyncOpenAI) -> None:
    models = await sdk.models.list()
    answer = await sdk.completions.create(model=models.data[0].id, prompt="hi", max_tokens=4)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 2
    assert answer.choices[0].finish_reason in {"stop", "length"}


async def test_it_streams_with_usage(sdk: openai.AsyncOpenAI) -> None:
    stream = await sdk.completions.create(
        model="gpt2-tiny",
        prompt="hi",
        max_tokens=6,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True},
    )
    chunks = [chunk async for chunk in stream]
    assert len(chunks) == 7
    assert chunks[5].choices[0].finish_reason == "length"
    assert chunks[6].usage is not None
    assert chunks[6].usage.completion_tokens == 6


async def test_its_errors_are_the_ones_it_knows(sdk: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        await sdk.completions.create(model="gpt-5", prompt="hi")
    with pytest.raises(openai.BadRequestError) as caught:
        await sdk.completions.create(model="gpt2-tiny", prompt="hi", max_tokens=5000)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.InternalServerError) as refused:
        await sdk.completions.create(
            model="gpt2-tiny", prompt="hi", extra_headers={"X-Punctual-Remaining-Ms": "0"}
        )
    assert refused.value.code == "deadline_unreachable"
