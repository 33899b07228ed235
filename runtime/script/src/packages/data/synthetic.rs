//! Datasets of random values.

use rhai::plugin::*;
use rhai::{Dynamic, Map, NativeCallContext};

use super::Pipeline;
use super::files::pipeline_of;
use crate::packages::options::FunctionOptions;
use crate::sandbox::{Fallible, script_state};
use flagperf_core::tensor::{TensorSpec, byte_count};
use flagperf_data::{Field, FieldRole, SAMPLE_BYTES_MAX, SampleSource, SyntheticField};

/// Largest number of samples of a synthetic dataset.
const SYNTHETIC_SAMPLES_MAX: usize = 10_000_000;

/// Reads fields by name: a shape, or `#{spec: .., min: .., max: ..}`.
fn parse_fields(map: Map, role: FieldRole) -> Fallible<Vec<SyntheticField>> {
    let field = |(name, spec): (rhai::Identifier, Dynamic)| {
        let (text, min, max) = match spec.read_lock::<Map>() {
            Some(options) => {
                let mut options = FunctionOptions::new("synthetic", options.clone());
                let found = (options.required_text("spec")?, options.number("min")?, options.number("max")?);
                options.finish()?;
                found
            }
            None => {
                let error = |actual| format!("field `{name}` must be a shape as a string, not {actual}");
                (spec.clone().into_immutable_string().map_err(error)?, None, None)
            }
        };
        let spec: TensorSpec = text.parse().map_err(|error| format!("field `{name}`: {error}"))?;
        let shape = spec
            .fixed_shape()
            .ok_or_else(|| format!("field `{name}`: every dimension of `{spec}` must be a number"))?;
        if byte_count(&shape, spec.dtype).is_none_or(|bytes| bytes > SAMPLE_BYTES_MAX) {
            return Err(format!(
                "field `{name}` of `{spec}` is too large: a sample may have at most {SAMPLE_BYTES_MAX} bytes"
            )
            .into());
        }
        Ok(SyntheticField { field: Field { name: name.into(), role, spec }, min, max })
    };
    map.into_iter().map(field).collect()
}

#[export_module]
pub(super) mod functions {
    /// Describes a dataset of seeded random samples in memory, for which accuracy is meaningless. Options: `samples`,
    /// `seed` (default 0), and the fields by name with the shape of one sample: `inputs` for forward functions, `truth`
    /// for evaluators only. Floats are uniform in -1..1, integers below 1000; `#{spec: "128,i64", min: 0, max: 30000}` sets
    /// the range, of which an integer never reaches `max`.
    ///
    /// ```rhai
    /// data::synthetic(#{samples: 100, inputs: #{images: "3,224,224,f32"}, truth: #{labels: #{spec: "i64", min: 0, max: 10}}})
    /// ```
    #[rhai_fn(return_raw)]
    pub fn synthetic(context: NativeCallContext, options: Map) -> Fallible<Pipeline> {
        script_state(&context)?.budget.check()?;
        let mut options = FunctionOptions::new("synthetic", options);
        let samples = options.required_size("samples")?;
        if samples == 0 || samples > SYNTHETIC_SAMPLES_MAX {
            return Err(format!("`samples` must be from 1 to {SYNTHETIC_SAMPLES_MAX}, not `{samples}`").into());
        }
        let seed = options.size("seed")?.unwrap_or(0) as u64;
        let mut all = parse_fields(options.map("inputs")?, FieldRole::Input)?;
        all.extend(parse_fields(options.map("truth")?, FieldRole::Truth)?);
        options.finish()?;
        let source = SampleSource::Synthetic { fields: all, samples, seed };
        Ok(pipeline_of(source))
    }
}
