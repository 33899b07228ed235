"""llama.cpp through its Python package, on the CPU: generates text from a GGUF file, which `exist_compiler_path` names."""

import llama_cpp

__version__ = llama_cpp.__version__
ROLES, KINDS = ["compiler"], ["compiled"]
# What the file contains decides in which type llama.cpp computes.
PRECISIONS = ["f32"]
TENSORS = "numpy"


class InferModel:
    takes_model = False
    device = "cpu"

    def __init__(self, config, onnx_path, model):
        self.threads = config.threads
        length = config.prompt_length + config.new_tokens
        threads = {"n_threads": self.threads, "n_threads_batch": self.threads} if self.threads else {}
        self.llm = llama_cpp.Llama(config.exist_compiler_path, n_ctx=length, verbose=False, **threads)

    def generate(self, prompts, new_tokens):
        for row, prompt in enumerate(prompts):
            # Without this, what it has computed of a prompt with the same beginning would be used again.
            self.llm.reset()
            tokens = self.llm.generate(prompt, top_k=1, temp=0.0, repeat_penalty=1.0)
            for _ in range(new_tokens):
                yield row, next(tokens)
