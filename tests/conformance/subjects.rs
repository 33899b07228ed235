//! What the suite tests: the rows of the table of engines, plug-ins and a sidecar. A trial opens only the libraries of its own
//! subject, when it runs.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::path::PathBuf;
use std::sync::OnceLock;

use flagperf_core::description::{Delivery, PROGRAM_ENGINE, Roles};
use flagperf_engine::{Engine, TABLE};

use crate::harness::{ModelForm, Subject};
use crate::support::{self, Missing};

const BOTH_ROLES: Roles = Roles { framework: true, compiler: true };

/// A subject that this machine may lack.
pub struct Candidate {
    /// The subject's name in the names of trials.
    pub name: String,
    /// The forms in which it receives models.
    pub forms: Vec<ModelForm>,
    find: Box<dyn Fn() -> Result<Subject, Missing> + Send + Sync>,
    found: OnceLock<Result<Subject, Missing>>,
}

impl Candidate {
    fn new(
        name: impl Into<String>,
        roles: Roles,
        find: impl Fn() -> Result<Subject, Missing> + Send + Sync + 'static,
    ) -> Self {
        let (forms, find) = (ModelForm::of(roles), Box::new(find));
        Candidate { name: name.into(), forms, find, found: OnceLock::new() }
    }

    /// Returns a row of the table, which `subject` describes if it works on this machine.
    fn row(engine: &'static dyn Engine, name: &str, subject: fn(&'static dyn Engine) -> Subject) -> Self {
        let check = move || match engine.check() {
            Ok(_) => Ok(subject(engine)),
            Err(unavailable) => Err(Missing::engine(engine.name(), unavailable)),
        };
        Candidate::new(name, engine.roles(), check)
    }

    /// Returns the subject, or what this machine lacks for it.
    pub fn subject(&self) -> Result<Subject, Missing> {
        let found = self.found.get_or_init(|| {
            let found = (self.find)();
            assert!(found.as_ref().map_or(true, |subject| subject.name == self.name), "the name of `{}`", self.name);
            found
        });
        found.clone()
    }
}

/// Returns every row of the table; instead of that of plug-ins, the example in Rust, which cargo builds next to this program,
/// and libtorch; and instead of that of sidecars, one of them. Subjects that can use the device that the environment names
/// are also tested there.
pub fn candidates() -> Vec<Candidate> {
    let of_row = |engine: &'static dyn Engine| match (engine.description().delivery, engine.name()) {
        (Delivery::Library, _) => vec![
            Candidate::new("interpreter-plugin", BOTH_ROLES, || Ok(Subject::plugin(&interpreter_plugin()))),
            Candidate::new("libtorch", BOTH_ROLES, || support::find_libtorch().map(|path| Subject::libtorch(&path))),
        ],
        (Delivery::Command, _) => {
            let roles = Roles { framework: false, compiler: true };
            let find = || support::find_python().map(|python| Subject::onnxruntime_python(&python));
            vec![Candidate::new("onnxruntime_py", roles, find)]
        }
        (_, "onnxruntime") => vec![Candidate::row(engine, "onnxruntime", Subject::onnxruntime)],
        (_, "openvino") => vec![
            Candidate::row(engine, "openvino", Subject::openvino),
            Candidate::row(engine, "openvino_streams", |engine| Subject::openvino(engine).with_streams()),
        ],
        // The one has a model of its own, and the other runs none.
        (Delivery::Server, _) | (_, PROGRAM_ENGINE) => Vec::new(),
        (_, name) => vec![Candidate::row(engine, name, Subject::row)],
    };
    let rows = TABLE.iter().copied().flat_map(of_row);
    rows.chain(support::device().iter().flat_map(|device| on_device(device))).collect()
}

/// Returns the subjects on a CUDA GPU.
fn on_device(device: &str) -> Vec<Candidate> {
    let engine = flagperf_engine::find("onnxruntime").expect("a row of the table");
    let mut all = Vec::new();
    for (place, suffix) in ["cuda", "cuda_graph"].into_iter().enumerate() {
        let (own, other) = (device.to_owned(), device.to_owned());
        all.push(Candidate::new(format!("onnxruntime_{suffix}"), engine.roles(), move || {
            engine.check().map_err(|unavailable| Missing::engine(engine.name(), unavailable))?;
            Ok(Subject::onnxruntime_cuda(engine, &own)[place].clone())
        }));
        all.push(Candidate::new(format!("libtorch_{suffix}"), BOTH_ROLES, move || {
            support::find_libtorch().map(|library| Subject::libtorch_cuda(&library, &other)[place].clone())
        }));
    }
    all
}

/// Returns the path of the example of a plug-in in Rust.
fn interpreter_plugin() -> PathBuf {
    let library = format!("{DLL_PREFIX}flagperf_plugin_interpreter{DLL_SUFFIX}");
    std::env::current_exe().unwrap().with_file_name(library)
}
