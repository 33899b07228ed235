//! The devices for which the adaptor waits before it reports that a batch is computed, with a library that records
//! them.

use assert_cmd::Command;

use crate::support;

/// A stub of torch: devices, their tensors, and a list of the devices that were synchronised.
const LIBRARY: &str = "
import types
from collections import namedtuple

Device = namedtuple('Device', 'type index')
Tensor = type('Tensor', (), {'__init__': lambda self, *device: setattr(self, 'device', Device(*device))})
waited = []

def accelerator(name, current=None):
    return types.SimpleNamespace(
        is_initialized=lambda: current is not None,
        current_device=lambda: current,
        synchronize=lambda device=Device(name, current): waited.append(f'{device.type}:{device.index}'),
    )

def waits(current, *tensors):
    waited.clear()
    library = types.SimpleNamespace(
        Tensor=Tensor, device=Device, set_grad_enabled=lambda on: None,
        cuda=accelerator('cuda', current), xpu=accelerator('xpu'), mps=accelerator('mps', 0),
    )
    flagperf_sidecar.TorchTensors(library).synchronize(list(tensors))
    print(*sorted(waited))

import flagperf_sidecar
";

/// Runs `calls` and returns the devices that were synchronised, one line for each call.
#[track_caller]
fn synchronized_devices(calls: &str) -> Option<String> {
    let mut command = Command::new(support::python()?);
    command.env("PYTHONPATH", support::root().join("runtime/sidecar"));
    let output = command.args(["-c", &format!("{LIBRARY}{calls}")]).assert().success().get_output().stdout.clone();
    Some(String::from_utf8(output).expect("text"))
}

#[test]
fn the_adaptor_waits_for_the_current_device_and_the_device_of_every_tensor() {
    let calls = "waits(0, Tensor('cpu', None), Tensor('cuda', 1), Tensor('cuda', 3), Tensor('cuda', 1))
waits(2)
waits(None, Tensor('cpu', None), 'not a tensor')
waits(None, Tensor('xpu', 1), Tensor('xpu', 0))
waits(None, Tensor('mps', 0))
";
    let Some(waited) = synchronized_devices(calls) else { return };
    assert_eq!(waited, "cuda:0 cuda:1 cuda:3\ncuda:2\n\nxpu:0 xpu:1\nmps:0\n");
}
