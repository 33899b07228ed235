//! A graph of one node of an operator, for a case of operator.yaml.

use flagperf_config::{Finding, OperatorCase, OperatorDescription};
use flagperf_core::tensor::{DType, TensorSpec};
use flagperf_engine::EngineError;
use flagperf_onnx::{Attribute, Graph};
use indexmap::IndexMap;

/// Largest number of elements of an input: the reference computes it in f64.
const ELEMENTS_MAX: u64 = 1 << 30;

/// Why a case cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    /// operator.yaml is wrong.
    #[error("{0}")]
    Description(Box<Finding>),
    /// The case is not possible.
    #[error("{0}")]
    Case(String),
    /// The engine fails.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl CaseError {
    pub(crate) fn case(error: impl std::fmt::Display) -> Self {
        CaseError::Case(error.to_string())
    }
}

impl From<Finding> for CaseError {
    fn from(finding: Finding) -> Self {
        CaseError::Description(Box::new(finding))
    }
}

/// Returns the types with which a case is run: those of the operator, or only the first if every input states its own.
///
/// # Errors
/// When operator.yaml names a type that does not exist.
pub fn case_dtypes(operator: &OperatorDescription, case: &OperatorCase) -> Result<Vec<DType>, CaseError> {
    let mut dtypes = operator.dtypes()?;
    if case.inputs.values().all(|spec| spec.parse::<TensorSpec>().is_ok()) {
        dtypes.truncate(1);
    }
    Ok(dtypes)
}

/// Returns the graph of a case. Inputs without a type have `dtype`.
pub(crate) fn node_graph(
    operator: &OperatorDescription,
    case: &OperatorCase,
    dtype: DType,
) -> Result<Graph, CaseError> {
    let spec = |(name, text): (&String, &String)| {
        let spec = text.parse::<TensorSpec>().or_else(|_| format!("{text},{dtype}").parse());
        let spec = spec.ok().filter(|spec| spec.fixed_shape().is_some());
        let spec =
            spec.ok_or_else(|| CaseError::Case(format!("`{text}` is not the shape of `{name}`, such as `4,256`")))?;
        let shape = spec.fixed_shape().into_iter().flatten();
        let elements = shape.map(|size| size as u64).fold(1, u64::saturating_mul);
        if elements > ELEMENTS_MAX {
            let reason = format!("input `{name}` with shape `{text}` has more than {ELEMENTS_MAX} elements");
            return Err(CaseError::Case(reason));
        }
        Ok((name.clone(), spec))
    };
    let inputs = case.inputs.iter().map(spec).collect::<Result<IndexMap<_, _>, CaseError>>()?;
    let attribute = |(name, text): (&String, &String)| {
        let integer = text.parse().map(Attribute::Int);
        let value = integer.or_else(|_| text.parse().map(Attribute::Float));
        let value = value.map_err(|_| CaseError::Case(format!("attribute `{name}`: `{text}` is not a number")))?;
        Ok((name.clone(), value))
    };
    let attributes = case.attributes.iter().map(attribute).collect::<Result<IndexMap<_, _>, CaseError>>()?;
    let forms: Vec<&str> = operator.forms.iter().map(|form| form.operator.as_str()).collect();
    let explain = |reason: String| {
        CaseError::Case(format!("{reason}; a case gives the inputs and attributes of a form: {}", forms.join("; ")))
    };
    operator.definition()?.node_graph(&inputs, &attributes).map_err(explain)
}
