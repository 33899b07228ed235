#!/usr/bin/env python3
"""Uses a server of flagperf with NVIDIA's client for Triton over gRPC: triton_client_grpc.py ADDRESS."""

import queue
import sys

import numpy as np
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException


def inputs(rows):
    data = grpcclient.InferInput("x", rows.shape, "FP32")
    data.set_data_from_numpy(rows)
    return [data]


def check_descriptions(client):
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("batched", "1")
    assert client.get_server_metadata().name == "flagperf"
    assert [dim for dim in client.get_model_metadata("batched").inputs[0].shape] == [-1, 3]
    config = client.get_model_config("batched", as_json=True)["config"]
    assert (config["max_batch_size"], config["input"][0]["data_type"]) == (8, "TYPE_FP32"), config
    assert config["dynamic_batching"]["max_queue_delay_microseconds"] == "1000", config


def check_streams(client, rows, whole):
    answers = queue.Queue()
    client.start_stream(callback=lambda result, error: answers.put((result, error)))
    for at, row in enumerate(rows):
        client.async_stream_infer("batched", inputs(row[None]), request_id=str(at))
    client.async_stream_infer("nothing", inputs(rows[:1]))
    for at in range(len(rows)):
        result, error = answers.get(timeout=30)
        assert error is None and result.get_response().id == str(at), error
        np.testing.assert_allclose(result.as_numpy("y")[0], whole[at], rtol=1e-5)
    result, error = answers.get(timeout=30)
    assert result is None and "unknown model `nothing`" in error.message(), error
    client.stop_stream()


def main(address):
    client = grpcclient.InferenceServerClient(url=address)
    check_descriptions(client)
    rows = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    whole = client.infer("batched", inputs(rows)).as_numpy("y")
    answers = queue.Queue()
    for row in rows:
        client.async_infer("batched", inputs(row[None]), lambda result, error: answers.put((result, error)))
    for _ in rows:
        result, error = answers.get(timeout=30)
        assert error is None and result.as_numpy("y").shape == (1, 5), error
    best = grpcclient.InferRequestedOutput("y", class_count=2)
    assert client.infer("batched", inputs(rows), outputs=[best]).as_numpy("y").shape == (4, 2)
    check_streams(client, rows, whole)
    stats = client.get_inference_statistics("batched").model_stats[0]
    assert stats.inference_count == 16, stats
    for wrong, expected in [(rows[:, :2].copy(), "the model expects [-1, 3]"), (np.zeros((9, 3), np.float32), "9 rows")]:
        try:
            client.infer("batched", inputs(wrong))
            raise AssertionError("a wrong shape was accepted")
        except InferenceServerException as error:
            assert error.status() == "StatusCode.INVALID_ARGUMENT" and expected in error.message(), error
    try:
        client.infer("slow", inputs(rows[:1]), client_timeout=0.1)
        raise AssertionError("the deadline was not kept")
    except InferenceServerException as error:
        assert error.status() == "StatusCode.DEADLINE_EXCEEDED", error
    client.unload_model("batched")
    states = {model.name: model.state for model in client.get_model_repository_index().models}
    assert states == {"batched": "UNAVAILABLE", "slow": "READY"}, states
    client.load_model("batched")
    assert client.is_model_ready("batched")


main(sys.argv[1])
