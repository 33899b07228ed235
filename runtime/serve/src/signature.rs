//! The inputs and outputs of a model under the names that clients use.

use flagperf_config::{ServedModel, list_known};
use flagperf_core::tensor::{Dim, NamedSizes, TensorSpec};
use indexmap::IndexMap;

use super::frame::{LoadedModel, NamedSpec, TensorHead};

/// An input or output.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    /// The name that clients use.
    pub name: String,
    /// Shape and type.
    pub spec: TensorSpec,
}

impl Port {
    /// Returns the sizes as the protocol writes them: -1 for any size.
    pub fn protocol_shape(&self) -> Vec<i64> {
        let size = |dim: &Dim| dim.fixed().and_then(|size| i64::try_from(size).ok()).unwrap_or(-1);
        self.spec.dims.iter().map(size).collect()
    }
}

/// The inputs and outputs of a model, in the engine's order.
#[derive(Clone, Debug, PartialEq)]
pub struct Signature {
    /// The inputs.
    pub inputs: Vec<Port>,
    /// The outputs.
    pub outputs: Vec<Port>,
    /// The most rows of a request; 0 if the shapes are those of the file.
    pub rows_max: u64,
}

impl Signature {
    /// Returns the signature of a loaded model with the names and the largest batch of its settings.
    ///
    /// # Errors
    /// When a name is not that of an input or output, two have the same name, or the file fixes the number of rows.
    pub fn new(loaded: &LoadedModel, settings: &ServedModel) -> Result<Self, String> {
        let signature = Signature {
            inputs: ports("inputs", &loaded.inputs, &settings.inputs)?,
            outputs: ports("outputs", &loaded.outputs, &settings.outputs)?,
            rows_max: settings.max_batch_size.into(),
        };
        let ports = signature.inputs.iter().chain(&signature.outputs);
        let fixed = |port: &&Port| port.spec.dims.first().is_none_or(|dim| dim.fixed().is_some());
        match ports.clone().find(fixed).filter(|_| signature.rows_max > 0) {
            Some(port) => Err(format!(
                "`max_batch_size` is {}, but the first dimension of `{}` is not open in the file: it is `{}` (0 serves \
                 the shapes of the file)",
                signature.rows_max, port.name, port.spec
            )),
            None => Ok(signature),
        }
    }

    /// Checks the inputs of a request, in the engine's order.
    ///
    /// # Errors
    /// When an input has another type or shape; the message names it.
    pub fn check_inputs(&self, given: &[TensorHead]) -> Result<(), String> {
        let mut sizes = NamedSizes::default();
        for (port, head) in self.inputs.iter().zip(given) {
            let (name, expected) = (&port.name, port.spec.dtype.kserve_name());
            if head.dtype != port.spec.dtype {
                return Err(format!(
                    "input `{name}` is {}, but the model expects {expected}",
                    head.dtype.kserve_name()
                ));
            }
            if !port.spec.admits(&head.shape, head.dtype) {
                let expected = port.protocol_shape();
                return Err(format!(
                    "input `{name}` has the shape {:?}, but the model expects {expected:?} (-1 is any size)",
                    head.shape
                ));
            }
            sizes.bind(&port.spec, &head.shape).map_err(|_| {
                format!("input `{name}` has the shape {:?}, which contradicts that of another input", head.shape)
            })?;
        }
        if self.rows_max == 0 {
            return Ok(());
        }
        let rows = |head: &TensorHead| head.shape.first().copied().unwrap_or(0) as u64;
        let first = given.first().map_or(0, rows);
        match given.iter().map(rows).find(|rows| *rows != first) {
            Some(other) => Err(format!("the inputs have {first} and {other} rows (the first dimension)")),
            None if !(1..=self.rows_max).contains(&first) => {
                Err(format!("the inputs have {first} rows; the model computes 1 to {} at once", self.rows_max))
            }
            None => Ok(()),
        }
    }
}

/// Returns the ports of a model, renamed. `key` is the key of the names in model.yaml.
fn ports(key: &str, specs: &[NamedSpec], names: &IndexMap<String, String>) -> Result<Vec<Port>, String> {
    let known = || specs.iter().map(|spec| spec.name.as_str());
    if let Some(unknown) = names.values().find(|name| !known().any(|known| known == *name)) {
        let known = list_known(unknown, known().collect::<Vec<_>>());
        return Err(format!("`{key}` of model.yaml names `{unknown}` (in the file: {known})"));
    }
    let name = |spec: &NamedSpec| {
        names.iter().find(|(_, own)| **own == spec.name).map_or(&spec.name, |(name, _)| name).clone()
    };
    let ports: Vec<Port> = specs.iter().map(|spec| Port { name: name(spec), spec: spec.spec.clone() }).collect();
    match ports.iter().enumerate().find(|(at, port)| ports[..*at].iter().any(|other| other.name == port.name)) {
        Some((_, twice)) => Err(format!("`{key}` of model.yaml: two of them are named `{}`", twice.name)),
        None => Ok(ports),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature(settings: &str) -> Result<Signature, String> {
        let spec = |name: &str, spec: &str| NamedSpec { name: name.to_owned(), spec: spec.parse().unwrap() };
        let loaded = LoadedModel {
            inputs: vec![spec("x", "N,3,f32"), spec("n", "N,1,i64")],
            outputs: vec![spec("y", "N,5,f32"), spec("z", "N,f32")],
            files_sha256: IndexMap::new(),
            device: "cpu".to_owned(),
        };
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("model.yaml"), settings).unwrap();
        Signature::new(&loaded, &ServedModel::read(folder.path(), folder.path()).unwrap())
    }

    fn check(signature: &Signature, given: [&str; 2]) -> Result<(), String> {
        let head = |spec: &str| {
            let spec: TensorSpec = spec.parse().unwrap();
            TensorHead { shape: spec.fixed_shape().unwrap(), dtype: spec.dtype }
        };
        signature.check_inputs(&given.map(head))
    }

    #[test]
    fn names_of_clients_stand_for_those_of_the_file() {
        let signature = signature("inputs: {INPUT_0: x}\noutputs: {OUTPUT_0: z}").unwrap();
        let names = |ports: &[Port]| ports.iter().map(|port| port.name.clone()).collect::<Vec<_>>();
        assert_eq!(
            (names(&signature.inputs), names(&signature.outputs)),
            (vec!["INPUT_0".to_owned(), "n".to_owned()], vec!["y".to_owned(), "OUTPUT_0".to_owned()])
        );
    }

    #[test]
    fn a_name_that_is_not_in_the_file_or_is_used_twice_is_an_error() {
        let error = signature("outputs: {OUT: w}").unwrap_err();
        assert_eq!(error, "`outputs` of model.yaml names `w` (in the file: y, z; nearest: y)");
        let error = signature("inputs: {n: x}").unwrap_err();
        assert_eq!(error, "`inputs` of model.yaml: two of them are named `n`");
    }

    #[test]
    fn inputs_of_another_type_or_shape_are_errors_that_say_what_is_expected() {
        let signature = signature("max_batch_size: 4").unwrap();
        check(&signature, ["4,3,f32", "4,1,i64"]).unwrap();
        for (given, expected) in [
            (["2,3,f64", "2,1,i64"], "input `x` is FP64, but the model expects FP32"),
            (["2,4,f32", "2,1,i64"], "input `x` has the shape [2, 4], but the model expects [-1, 3] (-1 is any size)"),
            (["2,3,f32", "1,1,i64"], "input `n` has the shape [1, 1], which contradicts that of another input"),
            (["5,3,f32", "5,1,i64"], "the inputs have 5 rows; the model computes 1 to 4 at once"),
            (["0,3,f32", "0,1,i64"], "the inputs have 0 rows; the model computes 1 to 4 at once"),
        ] {
            assert_eq!(check(&signature, given), Err(expected.to_owned()));
        }
    }
}
