#!/usr/bin/env python3
"""The script with which OneFlow shows its server, for an image of random pixels: triton_client_image.py ADDRESS."""

import sys

import numpy as np
import tritonclient.http as httpclient
from PIL import Image

triton_client = httpclient.InferenceServerClient(url=sys.argv[1])

image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (300, 400, 3), dtype=np.uint8))
image = image.resize((224, 224))
image = np.asarray(image)
image = image / 255
image = np.expand_dims(image, axis=0)
# Transpose NHWC to NCHW
image = np.transpose(image, axes=[0, 3, 1, 2])
image = image.astype(np.float32)

input = httpclient.InferInput("INPUT_0", image.shape, "FP32")
input.set_data_from_numpy(image, binary_data=True)
output_placeholder = httpclient.InferRequestedOutput("OUTPUT_0", binary_data=True, class_count=1)
output = triton_client.infer("resnet101", inputs=[input], outputs=[output_placeholder]).as_numpy("OUTPUT_0")
print(output)
(best,) = output
value, index = best.decode().split(":")
assert float(value) == 0 and int(index) == 0, output
