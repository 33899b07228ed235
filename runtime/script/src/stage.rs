//! The stages of a case and the monitor of a vendor: the file of each, the functions that it must or may define, and the
//! packages granted to it.

/// The role of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// `dataloader.rhai`: describes the dataset.
    Dataloader,
    /// `model.rhai`: builds the model.
    Model,
    /// `export.rhai`: changes the model before it is exported. Without this file, the model is exported unchanged.
    Export,
    /// `<vendor>/export.rhai`: changes the exported model for the compiler of a vendor.
    ExportAdapter,
    /// `evaluator.rhai`: compares outputs with the truth.
    Evaluator,
    /// `forward.rhai`: one step.
    Forward,
    /// `<vendor>/forward.rhai`: one step with the compiler of a vendor.
    Adapter,
    /// `training.rhai`: the data, the loss and the optimizer of a training.
    Training,
    /// `<vendor>/training.rhai`: how a vendor's engine gets the training step.
    TrainingAdapter,
    /// `monitor.rhai` in the folder of a vendor: reads what the vendor's command prints about its devices.
    Monitor,
}

/// A function of a script that the host calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct Function {
    pub(super) name: &'static str,
    /// Names of the parameters, as messages show them.
    pub(super) parameters: &'static [&'static str],
    /// The last parameter, which a script may leave out.
    pub(super) optional_parameter: Option<&'static str>,
    /// Whether the script must define the function; otherwise there is a default.
    pub(super) required: bool,
}

impl Function {
    /// Formats the signature: `create_model(config)`, or `model_forward(model, batch[, config])`.
    pub(super) fn signature(&self) -> String {
        let optional = self.optional_parameter.map(|name| format!("[, {name}]")).unwrap_or_default();
        format!("{}({}{optional})", self.name, self.parameters.join(", "))
    }

    /// Returns the position of `config` among this number of parameters; `None` without it.
    pub(super) fn config_index(&self, arity: usize) -> Option<usize> {
        let names = self.parameters.iter().copied().chain(self.optional_parameter);
        names.take(arity).position(|name| name == "config")
    }

    /// Returns whether the function may have this number of parameters.
    pub(super) fn accepts(&self, arity: usize) -> bool {
        let least = self.parameters.len();
        (least..=least + usize::from(self.optional_parameter.is_some())).contains(&arity)
    }
}

const fn required(name: &'static str, parameters: &'static [&'static str]) -> Function {
    Function { name, parameters, optional_parameter: None, required: true }
}

const fn optional(name: &'static str, parameters: &'static [&'static str]) -> Function {
    Function { required: false, ..required(name, parameters) }
}

/// A function of every step: a script may leave out its last parameter, `config`.
const fn step_function(name: &'static str, parameters: &'static [&'static str], required: bool) -> Function {
    Function { name, parameters, optional_parameter: Some("config"), required }
}

impl Stage {
    /// Every stage of a case.
    pub const ALL: [Stage; 9] = [
        Stage::Dataloader,
        Stage::Model,
        Stage::Forward,
        Stage::Evaluator,
        Stage::Export,
        Stage::ExportAdapter,
        Stage::Adapter,
        Stage::Training,
        Stage::TrainingAdapter,
    ];

    /// Returns the file name of the script in the folder of its case.
    pub const fn file(self) -> &'static str {
        match self {
            Stage::Dataloader => "dataloader.rhai",
            Stage::Model => "model.rhai",
            Stage::Export | Stage::ExportAdapter => "export.rhai",
            Stage::Evaluator => "evaluator.rhai",
            Stage::Forward | Stage::Adapter => "forward.rhai",
            Stage::Training | Stage::TrainingAdapter => "training.rhai",
            Stage::Monitor => flagperf_config::MONITOR_SCRIPT,
        }
    }

    /// Returns whether the host calls the script at every step, so that memory leaked by each call adds up.
    pub(super) const fn is_every_step(self) -> bool {
        matches!(self, Stage::Evaluator | Stage::Forward | Stage::Adapter)
    }

    /// Returns the functions that the host calls. Without `engine_forward`, the host calls `model_forward` with the
    /// engine.
    pub(super) const fn functions(self) -> &'static [Function] {
        match self {
            Stage::Dataloader => const { &[required("build_dataloader", &["config"])] },
            Stage::Model => const { &[required("create_model", &["config"])] },
            Stage::Export | Stage::ExportAdapter => const { &[required("export_model", &["model", "config"])] },
            Stage::Evaluator => const { &[step_function("evaluator", &["output", "truth"], true)] },
            Stage::Forward => {
                const {
                    &[
                        step_function("model_forward", &["model", "batch"], true),
                        step_function("engine_forward", &["engine", "batch"], false),
                    ]
                }
            }
            Stage::Adapter => const { &[step_function("engine_forward", &["engine", "batch"], true)] },
            Stage::Training => {
                const {
                    &[
                        required("build_dataloader", &["config"]),
                        required("compute_loss", &["model", "config"]),
                        required("create_optimizer", &["config"]),
                        optional("create_scheduler", &["config"]),
                    ]
                }
            }
            Stage::TrainingAdapter => {
                const { &[optional("convert_model", &["model", "config"]), optional("create_grad_scaler", &["config"])] }
            }
            Stage::Monitor => const { &[required("read_devices", &["output"])] },
        }
    }

    /// Returns the packages granted to the stage; functions of other packages do not exist for its script.
    pub const fn packages(self) -> &'static [&'static str] {
        match self {
            Stage::Dataloader => &["data", "image", "log"],
            Stage::Model => &["nn", "tensor", "log"],
            Stage::Export | Stage::ExportAdapter => &["graph", "nn", "tensor", "log"],
            Stage::Evaluator => &["metric", "boxes", "tensor", "log"],
            Stage::Training => &["data", "image", "nn", "optim", "tensor", "log"],
            Stage::TrainingAdapter => &["nn", "optim", "log"],
            Stage::Monitor => &["text"],
            Stage::Forward | Stage::Adapter => &["session", "boxes", "tensor", "timing", "log"],
        }
    }
}
