//! One case: a model with its inputs, its outputs and the tolerances, as ONNX's own runner compares them.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use flagperf_core::tensor::{DType, Tensor};
use flagperf_engine::{Artifact, EngineError, Session, Value};
use flagperf_onnx::read_onnx;
use safetensors::{Dtype, SafeTensors};

use crate::harness::{Harness, ModelForm};

/// What came of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The outputs are the expected ones.
    Right,
    /// The engine refuses the model or its inputs, or fails with an error.
    Refused,
    /// The outputs are others, and the session has a warning; or they are random.
    Warned,
    /// The outputs are others, without a word.
    Wrong,
    /// The process ended.
    Ended,
}

const VERDICTS: [(Verdict, &str); 5] = [
    (Verdict::Right, "right"),
    (Verdict::Refused, "refused"),
    (Verdict::Warned, "warned"),
    (Verdict::Wrong, "wrong"),
    (Verdict::Ended, "ended"),
];

impl Verdict {
    /// Returns the verdict of this name.
    pub fn parse(name: &str) -> Verdict {
        VERDICTS.into_iter().find(|(_, word)| *word == name).expect("a verdict").0
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(VERDICTS.into_iter().find(|(verdict, _)| verdict == self).expect("a verdict").1)
    }
}

/// A case of the folder.
pub struct Case {
    model: PathBuf,
    /// The tensors by name: `SET.in.VALUE`, `SET.out.VALUE`.
    tensors: Vec<(String, Tensor)>,
    rtol: f64,
    atol: f64,
    /// A kind of value in the case that no tensor of the host can have.
    unsupported: Option<String>,
}

impl Case {
    /// Reads the tensors beside a model.
    pub fn read(model: &Path) -> Self {
        let bytes = fs::read(model.with_extension("safetensors")).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let tensors = file.iter().map(|(name, view)| {
            let tensor = Tensor::from_bytes(view.shape(), dtype(view.dtype()), view.data()).unwrap();
            (name.to_owned(), tensor)
        });
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        let metadata = header.metadata().as_ref().unwrap();
        let number = |key: &str| metadata[key].parse().unwrap();
        Case {
            model: model.to_owned(),
            tensors: tensors.collect(),
            rtol: number("rtol"),
            atol: number("atol"),
            unsupported: metadata.get("unsupported").cloned(),
        }
    }

    /// Runs the case. Returns the verdict with its reason.
    pub fn run(&self, harness: &Harness) -> (Verdict, String) {
        let mut session = match self.load(harness) {
            Ok(session) => session,
            Err(error) => return (Verdict::Refused, error.to_string()),
        };
        if let Some(kind) = &self.unsupported {
            return (Verdict::Refused, format!("the host has no tensors for {kind}"));
        }
        let warnings = session.facts().warnings;
        let mut set = 0;
        while self.tensors.iter().any(|(name, _)| name.starts_with(&format!("{set}."))) {
            match self.run_set(&mut *session, set) {
                Ok(_) if warnings.iter().any(|warning| warning.ends_with(RANDOM)) => {
                    return (Verdict::Warned, warnings.join("; "));
                }
                Ok(Ok(())) => set += 1,
                Ok(Err(difference)) if warnings.is_empty() => return (Verdict::Wrong, difference),
                Ok(Err(difference)) => return (Verdict::Warned, format!("{difference}: {}", warnings.join("; "))),
                Err(error) => return (Verdict::Refused, error.to_string()),
            }
        }
        (Verdict::Right, String::new())
    }

    fn load(&self, harness: &Harness) -> Result<Box<dyn Session>, EngineError> {
        let is_input = |dtype: &DType| {
            self.tensors.iter().any(|(name, tensor)| name.starts_with("0.in.") && tensor.dtype() == *dtype)
        };
        let supported = harness.subject.engine.precisions();
        let mut floats = [DType::F32, DType::F64, DType::F16, DType::BF16].into_iter();
        let precision = floats.find(|dtype| supported.contains(dtype) && is_input(dtype)).unwrap_or(DType::F32);
        let options = harness.options(precision);
        match harness.form {
            ModelForm::File => harness.subject.engine.load(Artifact::Onnx(&self.model), &options),
            ModelForm::Graph => {
                let graph = read_onnx(&self.model).map_err(|error| EngineError::Failed(error.to_string()))?;
                harness.subject.engine.load(Artifact::Graph(&graph), &options)
            }
        }
    }

    /// Runs one set. Returns how the outputs differ, if they do.
    fn run_set(&self, session: &mut dyn Session, set: usize) -> Result<Result<(), String>, EngineError> {
        let find = |side: &str, value: &str| {
            let name = format!("{set}.{side}.{value}");
            self.tensors.iter().find(|(known, _)| *known == name).map(|(_, tensor)| tensor)
        };
        let inputs = session.inputs().iter().map(|info| {
            let missing = || EngineError::Failed(format!("the case has no input `{}`", info.name));
            find("in", &info.name).cloned().map(Value::Host).ok_or_else(missing)
        });
        let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
        let outputs = session.submit(&inputs)?;
        session.sync()?;
        for (info, output) in session.outputs().iter().zip(&outputs) {
            let (name, output) = (&info.name, output.to_host()?);
            let Some(expected) = find("out", name) else { return Ok(Err(format!("`{name}` is not expected"))) };
            if let Err(difference) = compare(&output, expected, self.rtol, self.atol) {
                return Ok(Err(format!("`{name}`: {difference}")));
            }
        }
        let count = self.tensors.iter().filter(|(name, _)| name.starts_with(&format!("{set}.out."))).count();
        Ok(if count == outputs.len() { Ok(()) } else { Err(format!("{} outputs, not {count}", outputs.len())) })
    }
}

/// The end of the warning of an operator whose outputs are not the same in every run.
const RANDOM: &str = "draws random numbers of its own";

/// Rounding of f32 relative to the largest number of an output: eight units in the last place.
const ROUNDING: f64 = 1e-6;

/// Compares as ONNX's runner does: type, shape, and each number within `atol + rtol * |expected|`. What f32 rounds relative to
/// the largest number is right, too, which ONNX's limits leave out.
fn compare(output: &Tensor, expected: &Tensor, rtol: f64, atol: f64) -> Result<(), String> {
    if output.dtype() != expected.dtype() || output.shape() != expected.shape() {
        return Err(format!("{} instead of {}", output.spec(), expected.spec()));
    }
    // Two units in the last place of a type of 16 bits.
    let rtol = match expected.dtype() {
        DType::BF16 => rtol.max(0.5f64.powi(6)),
        DType::F16 => rtol.max(0.5f64.powi(9)),
        _ => rtol,
    };
    let is_f32 = expected.dtype() == DType::F32;
    let (output, expected) = (output.to_f64(), expected.to_f64());
    let largest = expected.iter().filter(|x| x.is_finite()).fold(1.0, |largest: f64, x| largest.max(x.abs()));
    let atol = if is_f32 { atol.max(ROUNDING * largest) } else { atol };
    let is_near = |x: f64, y: f64| y.is_finite() && (x - y).abs() <= atol + rtol * y.abs();
    let is_close = |x: f64, y: f64| x == y || (x.is_nan() && y.is_nan()) || is_near(x, y);
    let wrong = output.iter().zip(&expected).position(|(x, y)| !is_close(*x, *y));
    wrong.map_or(Ok(()), |i| {
        let count = output.iter().zip(&expected).filter(|(x, y)| !is_close(**x, **y)).count();
        Err(format!("element {i} is {} instead of {} ({count} of {} differ)", output[i], expected[i], output.len()))
    })
}

fn dtype(dtype: Dtype) -> DType {
    match dtype {
        Dtype::F64 => DType::F64,
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::I64 => DType::I64,
        Dtype::I32 => DType::I32,
        Dtype::I16 => DType::I16,
        Dtype::I8 => DType::I8,
        Dtype::U64 => DType::U64,
        Dtype::U32 => DType::U32,
        Dtype::U16 => DType::U16,
        Dtype::U8 => DType::U8,
        Dtype::BOOL => DType::Bool,
        other => panic!("unsupported element type {other:?}"),
    }
}
