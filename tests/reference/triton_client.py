#!/usr/bin/env python3
"""Uses a server of flagperf with NVIDIA's client for Triton: triton_client.py ADDRESS."""

import sys

import numpy as np
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException


def infer(client, model, rows, binary, name="x", output="y", **wanted):
    data = httpclient.InferInput(name, rows.shape, "FP32")
    data.set_data_from_numpy(rows, binary_data=binary)
    output_placeholder = httpclient.InferRequestedOutput(output, binary_data=binary, **wanted)
    result = client.infer(model, inputs=[data], outputs=[output_placeholder], request_id="7")
    assert result.get_response()["id"] == "7"
    return result.as_numpy(output)


def main(address):
    client = httpclient.InferenceServerClient(url=address, concurrency=8)
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("resnet101", "1")
    assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
    assert client.get_model_metadata("resnet101")["inputs"][0]["name"] == "INPUT_0"

    image = np.array([[1, 2, 3]], dtype=np.float32)
    names = {"name": "INPUT_0", "output": "OUTPUT_0"}
    numbers = infer(client, "resnet101", image, True, **names)
    assert numbers.shape == (1, 5) and numbers.dtype == np.float32
    np.testing.assert_array_equal(numbers, infer(client, "resnet101", image, False, **names))
    (best,) = infer(client, "resnet101", image, True, class_count=1, **names)
    index = int(numbers.argmax())
    assert best == f"{numbers[0, index]:.6f}:{index}".encode(), best

    rows = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    whole = infer(client, "batched", rows, True)
    pending = []
    for row in rows:
        data = httpclient.InferInput("x", (1, 3), "FP32")
        data.set_data_from_numpy(row[None])
        pending.append(client.async_infer("batched", [data]))
    joined = np.concatenate([request.get_result().as_numpy("y") for request in pending])
    np.testing.assert_allclose(joined, whole, rtol=1e-5)
    assert infer(client, "batched", rows, True, class_count=2).shape == (4, 2)
    stats = client.get_inference_statistics("batched")["model_stats"][0]
    assert stats["inference_count"] == 12, stats

    try:
        infer(client, "batched", rows[:, :2].copy(), True)
        raise AssertionError("a wrong shape was accepted")
    except InferenceServerException as error:
        assert "the model expects [-1, 3]" in error.message(), error

    client.unload_model("resnet101")
    states = {model["name"]: model["state"] for model in client.get_model_repository_index()}
    assert states == {"resnet101": "UNAVAILABLE", "batched": "READY"}, states
    client.load_model("resnet101")
    assert client.is_model_ready("resnet101")


main(sys.argv[1])
