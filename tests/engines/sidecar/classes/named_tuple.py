"""Like FlagPerf's XTCL class: reads `config` as a named tuple and checks which fields it has."""

import copy
import pickle
import time

import torch
import tvm


class InferModel:
    def __init__(self, config, onnx_path, model):
        assert isinstance(config, tuple) and len(config) == len(config._fields)
        assert "vm_enable" in config._fields and "resnet50_fuse" not in config._fields
        assert config.vm_enable is True and config.build_config["pattern_match"] == ["a", "b"]
        # Keys that are not identifiers, that are keywords, or that are also attributes of a tuple.
        assert (getattr(config, "wide-blocks"), getattr(config, "class"), config.count, config.index) == (3, 1, 7, 9)
        assert config[config._fields.index("batch_size")] == config.batch_size == 4
        assert config._asdict()["wide-blocks"] == 3 and dict(zip(config._fields, config)) == config._asdict()
        assert config._replace(batch_size=8).batch_size == 8 and config.batch_size == 4
        assert copy.deepcopy(config) == config == pickle.loads(pickle.dumps(config))
        assert getattr(config, "resnet50_fuse", None) is None and not hasattr(config, "resnet50_fuse")
        assert repr(config).startswith("Config(") and "batch_size=4" in repr(config)
        try:
            config.batch_size = 8
            raise ValueError("the configuration was changed")
        except AttributeError as error:
            assert "`config.batch_size` cannot be changed" in str(error), error
        self.executor = tvm.Executor(onnx_path)

    def __call__(self, model_inputs: list):
        for name, tensor in zip(self.executor.network.inputs, model_inputs):
            self.executor.set_input(name, tensor.numpy())
        self.executor.run()
        start = time.time()
        outputs = [torch.from_numpy(self.executor.get_output(i)) for i in range(self.executor.get_num_outputs())]
        return outputs, time.time() - start
