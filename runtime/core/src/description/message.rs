//! A description as a message between processes: a plug-in or a sidecar is described in a process of its own.

use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::{Delivery, EngineDescription, OptionMessage, Roles};
use crate::tensor::DType;

/// An [`EngineDescription`] as it travels between processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DescriptionMessage {
    pub name: String,
    /// One line about the engine.
    pub about: String,
    /// Whether it can run the validation phase.
    pub framework: bool,
    /// Whether it can run the inference phase.
    pub compiler: bool,
    /// The floating-point types that it computes in: `f32`.
    pub precisions: Vec<DType>,
    /// The highest version of the operator set.
    pub opset_max: i64,
    /// Whether it compiles ONNX files.
    pub compiles: bool,
    /// Whether it loads files that it wrote earlier.
    pub loads_compiled: bool,
    /// The extensions of those files.
    pub compiled_extensions: Vec<String>,
    /// The options, if the engine lists them.
    #[serde(default)]
    pub options: Option<Vec<OptionMessage>>,
}

impl From<&EngineDescription> for DescriptionMessage {
    fn from(description: &EngineDescription) -> Self {
        DescriptionMessage {
            name: description.name.to_owned(),
            about: description.about.to_owned(),
            framework: description.roles.framework,
            compiler: description.roles.compiler,
            precisions: description.precisions.to_vec(),
            opset_max: description.opset_max,
            compiles: description.compiles,
            loads_compiled: description.loads_compiled,
            compiled_extensions: description.compiled_extensions.iter().map(|&own| own.to_owned()).collect(),
            options: description.options.map(|options| options.iter().map(OptionMessage::from).collect()),
        }
    }
}

impl DescriptionMessage {
    /// The description. Its texts stay until the process ends; equal messages share them, because an engine describes
    /// itself again each time that it loads a model.
    pub fn into_description(self, delivery: Delivery) -> EngineDescription {
        static STORED: Mutex<Vec<(DescriptionMessage, EngineDescription)>> = Mutex::new(Vec::new());
        let mut stored = STORED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, description)) = stored.iter().find(|(message, _)| *message == self) {
            return EngineDescription { delivery, ..*description };
        }
        let description = self.clone().store(delivery);
        stored.push((self, description));
        description
    }

    fn store(self, delivery: Delivery) -> EngineDescription {
        EngineDescription {
            name: self.name.leak(),
            about: self.about.leak(),
            roles: Roles { framework: self.framework, compiler: self.compiler },
            precisions: self.precisions.leak(),
            opset_max: self.opset_max,
            compiles: self.compiles,
            loads_compiled: self.loads_compiled,
            compiled_extensions: {
                let extensions: Vec<&'static str> =
                    self.compiled_extensions.into_iter().map(|own| &*own.leak()).collect();
                extensions.leak()
            },
            delivery,
            uses_threads: true,
            generates_text: false,
            options: self.options.map(|options| {
                let options: Vec<_> = options.into_iter().map(OptionMessage::into_option).collect();
                &*options.leak()
            }),
        }
    }
}
