#!/usr/bin/env python3
"""Uses a server of flagperf with OpenAI's client: openai_client.py ADDRESS."""

import sys

import openai


def main(address):
    client = openai.OpenAI(base_url=f"http://{address}/v1", api_key="none", max_retries=0)
    assert [model.id for model in client.models.list()] == ["m"]
    assert client.models.retrieve("m").id == "m"

    whole = client.completions.create(model="m", prompt="hello", max_tokens=8, temperature=0)
    assert whole.choices[0].finish_reason in ("length", "stop") and whole.usage.prompt_tokens > 0
    parts = client.completions.create(model="m", prompt="hello", max_tokens=8, temperature=0, stream=True)
    assert "".join(part.choices[0].text for part in parts) == whole.choices[0].text

    messages = [{"role": "system", "content": "brief"}, {"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    wanted = {"model": "m", "messages": messages, "max_completion_tokens": 6, "temperature": 0}
    answer = client.chat.completions.create(**wanted)
    assert answer.choices[0].message.role == "assistant"
    parts = list(client.chat.completions.create(**wanted, stream=True, stream_options={"include_usage": True}))
    text = "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
    assert text == answer.choices[0].message.content
    assert parts[-1].usage == answer.usage and parts[-1].choices == []

    for wrong, kind in [
        ({"model": "n"}, openai.NotFoundError),
        ({"max_tokens": 1000}, openai.BadRequestError),
        ({"temperature": 1}, openai.BadRequestError),
        ({"stop": ["a"] * 5}, openai.BadRequestError),
    ]:
        try:
            client.completions.create(**{"model": "m", "prompt": "a", "temperature": 0, **wrong})
        except kind as error:
            assert error.body["message"], error
        else:
            raise AssertionError(f"{wrong} was accepted")


main(*sys.argv[1:])
