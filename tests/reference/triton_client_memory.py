#!/usr/bin/env python3
"""Uses shared memory with NVIDIA's clients for Triton: triton_client_memory.py HTTP_ADDRESS GRPC_ADDRESS."""

import os
import sys

import numpy as np
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
import tritonclient.utils.shared_memory as shared_memory


def check(module, client, expected):
    rows = np.array([[1, 2, 3]], dtype=np.float32)
    key = f"/flagperf-client-{os.getpid()}"
    region = shared_memory.create_shared_memory_region("tensors", key, rows.nbytes + 20)
    try:
        shared_memory.set_shared_memory_region(region, [rows])
        client.register_system_shared_memory("tensors", key, rows.nbytes + 20)
        assert "tensors" in str(client.get_system_shared_memory_status())
        data = module.InferInput("x", rows.shape, "FP32")
        data.set_shared_memory("tensors", rows.nbytes)
        wanted = module.InferRequestedOutput("y")
        wanted.set_shared_memory("tensors", 20, offset=rows.nbytes)
        client.infer("m", inputs=[data], outputs=[wanted])
        found = shared_memory.get_contents_as_numpy(region, np.float32, [1, 5], offset=rows.nbytes)
        np.testing.assert_array_equal(found, expected)
        client.unregister_system_shared_memory("tensors")
    finally:
        shared_memory.destroy_shared_memory_region(region)


def main(http_address, grpc_address):
    over_http = httpclient.InferenceServerClient(url=http_address)
    over_grpc = grpcclient.InferenceServerClient(url=grpc_address)
    data = httpclient.InferInput("x", (1, 3), "FP32")
    data.set_data_from_numpy(np.array([[1, 2, 3]], dtype=np.float32))
    expected = over_http.infer("m", inputs=[data]).as_numpy("y")
    check(httpclient, over_http, expected)
    check(grpcclient, over_grpc, expected)


main(*sys.argv[1:])
