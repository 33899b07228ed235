//! The errors of creating a case, a vendor or an engine.

use std::io;
use std::path::PathBuf;

use flagperf_config::Finding;

/// Why something new could not be created. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum ScaffoldError {
    /// A name with other characters than those allowed.
    #[error("`{name}` cannot be the name of {what}")]
    Name {
        /// `a case`, `a vendor` or `an engine`.
        what: &'static str,
        name: String,
    },
    /// A name that has another meaning.
    #[error("`{name}` cannot be the name of {what}: {reason}")]
    Reserved {
        /// `a case`, `a vendor` or `an engine`.
        what: &'static str,
        name: String,
        /// Its other meaning.
        reason: &'static str,
    },
    /// A file or folder that is already there.
    #[error("`{}` exists already", .path.display())]
    Exists {
        /// Its path, relative to the checkout.
        path: PathBuf,
    },
    /// A file that is not a model with inputs that can be drawn.
    #[error("`{}`: {reason}", .path.display())]
    Model { path: PathBuf, reason: String },
    /// A file that is no ONNX model.
    #[error(transparent)]
    Onnx(#[from] flagperf_onnx::OnnxError),
    /// A vendor without a folder.
    #[error("unknown vendor `{vendor}` (known: {known})")]
    UnknownVendor {
        vendor: String,
        /// The vendors of the checkout.
        known: String,
        /// The known vendor that was probably meant.
        nearest: Option<String>,
    },
    /// A vendor whose vendor.yaml cannot be read.
    #[error("{0}")]
    Vendor(Finding),
    /// A compiler that the vendor already has.
    #[error("{place}: vendor `{vendor}` already has a compiler `{name}`")]
    Taken {
        vendor: String,
        /// The compiler.
        name: String,
        /// Its line.
        place: String,
    },
    /// A vendor.yaml whose list of compilers is written in a form that lines cannot be added to.
    #[error("{place}: cannot add a line to `compilers`, which is not written as one line per compiler")]
    NoPlace {
        /// The line of `compilers`.
        place: String,
        /// The line to add.
        entry: String,
    },
    /// A file that another program changed after it was read.
    #[error("another program changed `{}` at the same time", .path.display())]
    ChangedMeanwhile {
        /// Its path, relative to the checkout.
        path: PathBuf,
    },
    /// Another `flagperf new` that does not end.
    #[error("another `flagperf new` has been creating something in this checkout for {} s", .seconds)]
    Busy {
        /// How long this process waited for it.
        seconds: u32,
    },
    /// A file or folder that cannot be written.
    #[error("cannot write `{}`: {cause}", .path.display())]
    Write {
        /// Its path, relative to the checkout.
        path: PathBuf,
        /// The cause.
        cause: io::Error,
    },
}

impl ScaffoldError {
    /// Returns what to do about the error; empty when the message suffices.
    pub fn hint(&self) -> String {
        match self {
            Self::Name { .. } => {
                "a name begins with a letter and has at most 64 characters, each an ASCII letter, a digit, `_` or `-`"
                    .to_owned()
            }
            Self::Reserved { .. } | Self::Exists { .. } | Self::Taken { .. } => "choose another name".to_owned(),
            Self::UnknownVendor { nearest: Some(near), .. } => format!("did you mean `{near}`?"),
            Self::UnknownVendor { vendor, .. } => format!("`flagperf new vendor {vendor}` creates it"),
            Self::NoPlace { entry, .. } => format!("write it so, or add this entry yourself: `{entry}`"),
            Self::ChangedMeanwhile { .. } => "type the command again".to_owned(),
            Self::Busy { .. } => "end that process, or wait for it, and type the command again".to_owned(),
            Self::Vendor(_) | Self::Model { .. } | Self::Onnx(_) | Self::Write { .. } => String::new(),
        }
    }
}
