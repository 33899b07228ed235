#!/usr/bin/env python3
"""Uses an encrypted server of flagperf with NVIDIA's clients: triton_client_tls.py HTTP_PORT GRPC_PORT CERTIFICATE TOKEN."""

import ssl
import sys

import numpy as np
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient


def infer(module, client, headers):
    data = module.InferInput("x", (1, 3), "FP32")
    data.set_data_from_numpy(np.ones((1, 3), dtype=np.float32))
    # The client over HTTP adds headers of its own.
    return client.infer("m", inputs=[data], headers=dict(headers)).as_numpy("y")


def main(http_port, grpc_port, certificate, token):
    headers = {"authorization": f"Bearer {token}"}
    over_http = httpclient.InferenceServerClient(
        url=f"localhost:{http_port}",
        ssl=True,
        ssl_context_factory=lambda: ssl.create_default_context(cafile=certificate),
    )
    over_grpc = grpcclient.InferenceServerClient(
        url=f"localhost:{grpc_port}", ssl=True, root_certificates=certificate
    )
    assert over_grpc.is_server_live()
    numbers = infer(httpclient, over_http, headers)
    np.testing.assert_array_equal(numbers, infer(grpcclient, over_grpc, headers))


main(*sys.argv[1:])
