//! Compares the memory that a model needs with the memory of the machine, before an engine of the processor loads it: the
//! system would kill the worker without a reason.

use flagperf_core::event::Failure;
use flagperf_core::precision::Precision;
use flagperf_core::tensor::{Dim, TensorSpec, byte_count};
use flagperf_onnx::Graph;
use flagperf_plan::Job;

use super::phase::failure;

/// The memory that the graphs of a model need at least, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct MemoryNeed {
    weights: u64,
    /// The outputs of a full batch whose sizes are known, among them the cache of a language model.
    outputs: u64,
}

/// Checks that the machine has the memory that these graphs need at least. Checks nothing if the engine may use a device with
/// memory of its own.
///
/// # Errors
/// When they need more than is available.
pub fn check<'g>(graphs: impl Iterator<Item = &'g Graph>, job: &Job) -> Result<(), Failure> {
    let monitor = job.monitor.as_deref().and_then(flagperf_monitor::find);
    if monitor.is_none_or(|monitor| monitor.reads_devices()) {
        return Ok(());
    }
    let need = MemoryNeed::of(graphs, job.settings.batch_size as usize);
    need.check(flagperf_engine::available_memory(), job.settings.precision)
}

impl MemoryNeed {
    fn of<'g>(graphs: impl Iterator<Item = &'g Graph>, batch_size: usize) -> Self {
        let mut need = MemoryNeed::default();
        for graph in graphs {
            need.weights += graph.weights.values().map(|weight| bytes(&weight.spec, 1)).sum::<u64>();
            need.outputs += graph.outputs.iter().map(|output| bytes(&output.spec, batch_size)).sum::<u64>();
        }
        need
    }

    fn check(self, available: u64, precision: Precision) -> Result<(), Failure> {
        let MemoryNeed { weights, outputs } = self;
        if weights.saturating_add(outputs) <= available {
            return Ok(());
        }
        let [weights, outputs, available] =
            [weights, outputs, available].map(|bytes| bytes as f64 / f64::from(1 << 30));
        let reason = format!(
            "the weights take {weights:.1} GiB as {} and the outputs of a batch, such as a cache, {outputs:.1} GiB, but \
             {available:.1} GiB of memory are available",
            precision.name()
        );
        Err(failure(
            &reason,
            "use a `precision` of fewer bits, a smaller model or batch, or a machine with more memory",
        ))
    }
}

/// Returns the bytes of a value whose first dimension, if it is named, is that of the batch; 0 if another one is not known.
fn bytes(spec: &TensorSpec, batch_size: usize) -> u64 {
    let size = |(axis, dim): (usize, &Dim)| dim.fixed().or((axis == 0).then_some(batch_size));
    let shape: Option<Vec<usize>> = spec.dims.iter().enumerate().map(size).collect();
    shape.and_then(|shape| byte_count(&shape, spec.dtype)).unwrap_or_default() as u64
}

#[cfg(test)]
mod tests {
    use flagperf_onnx::{GraphBuilder, layers};

    use super::*;

    #[test]
    fn weights_and_outputs_of_a_full_batch_are_needed() {
        let mut b = GraphBuilder::new("g");
        let x = b.input("x", "N,L,8,f32".parse().unwrap()).unwrap();
        let y = layers::linear(&mut b, "fc", &x, layers::Linear::new(8, 4)).unwrap();
        b.output("y", &y).unwrap();
        let cache = b.input("past", "N,2,16,8,f16".parse().unwrap()).unwrap();
        b.output("present", &cache).unwrap();
        let graph = b.finish().unwrap();
        let need = MemoryNeed::of([&graph].into_iter(), 3);
        assert_eq!(need, MemoryNeed { weights: (8 * 4 + 4) * 4, outputs: 3 * 2 * 16 * 8 * 2 });
        need.check(144 + 1536, Precision::Fp32).unwrap();
        need.check(144 + 1535, Precision::Fp32).unwrap_err();
    }

    #[test]
    fn the_error_has_all_three_amounts() {
        let need = MemoryNeed { weights: 26_953_662_464, outputs: 1 << 29 };
        let error = need.check(23_515_000_000, Precision::Fp32).unwrap_err();
        assert_eq!(
            error.reason,
            "the weights take 25.1 GiB as fp32 and the outputs of a batch, such as a cache, 0.5 GiB, but 21.9 GiB of \
             memory are available"
        );
    }
}
