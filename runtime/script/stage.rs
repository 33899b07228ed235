//! The stages of a case: which file each is in, which functions it must or may have, and which packages it is granted.

/// A script of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// `dataloader.rhai`: describes the dataset.
    Dataloader,
    /// `model.rhai`: builds the model.
    Model,
    /// `export.rhai`: changes the model before it is exported. Without the file it is exported as it was made.
    Export,
    /// `evaluator.rhai`: compares outputs with the truth.
    Evaluator,
    /// `forward.rhai`: one step.
    Forward,
    /// `<vendor>/forward.rhai`: a vendor's own step with its compiler.
    Adapter,
}

/// A function of a script.
#[derive(Clone, Copy, Debug)]
pub(super) struct Function {
    pub(super) name: &'static str,
    /// Its parameters, as a message shows them.
    pub(super) parameters: &'static [&'static str],
    /// Whether the case must have it, or has a default.
    pub(super) required: bool,
}

impl Function {
    /// `model_forward(model, batch)`.
    pub(super) fn signature(&self) -> String {
        format!("{}({})", self.name, self.parameters.join(", "))
    }
}

const fn required(name: &'static str, parameters: &'static [&'static str]) -> Function {
    Function { name, parameters, required: true }
}

const fn optional(name: &'static str, parameters: &'static [&'static str]) -> Function {
    Function { name, parameters, required: false }
}

impl Stage {
    /// Every stage, in the order of a run.
    pub const ALL: [Stage; 6] =
        [Stage::Dataloader, Stage::Model, Stage::Forward, Stage::Evaluator, Stage::Export, Stage::Adapter];

    /// The script's file in the folder of its case.
    pub const fn file(self) -> &'static str {
        match self {
            Stage::Dataloader => "dataloader.rhai",
            Stage::Model => "model.rhai",
            Stage::Export => "export.rhai",
            Stage::Evaluator => "evaluator.rhai",
            Stage::Forward | Stage::Adapter => "forward.rhai",
        }
    }

    /// Whether the host calls the script at every step, so that what a call leaves behind adds up.
    pub(super) const fn is_every_step(self) -> bool {
        matches!(self, Stage::Evaluator | Stage::Forward | Stage::Adapter)
    }

    /// The functions that the host calls. Without `engine_forward` the host calls `model_forward` with the engine.
    pub(super) const fn functions(self) -> &'static [Function] {
        match self {
            Stage::Dataloader => const { &[required("build_dataloader", &["config"])] },
            Stage::Model => const { &[required("create_model", &["config"])] },
            Stage::Export => const { &[required("export_model", &["model", "config"])] },
            Stage::Evaluator => const { &[required("evaluator", &["output", "truth"])] },
            Stage::Forward => {
                const { &[required("model_forward", &["model", "batch"]), optional("engine_forward", &["engine", "batch"])] }
            }
            Stage::Adapter => const { &[required("engine_forward", &["engine", "batch"])] },
        }
    }

    /// The packages granted to the stage; a function of another is not there.
    pub const fn packages(self) -> &'static [&'static str] {
        match self {
            Stage::Dataloader => &["data", "image", "log"],
            Stage::Model => &["nn", "tensor", "log"],
            Stage::Export => &["nn", "log"],
            Stage::Evaluator => &["metric", "tensor", "log"],
            Stage::Forward | Stage::Adapter => &["session", "tensor", "timing", "log"],
        }
    }
}
