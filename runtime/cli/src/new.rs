//! `flagperf new`: creates a case, a vendor or an engine, and prints the next commands.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Subcommand, ValueHint};

use super::argument_values::{EngineArgument, dimension_size};
use super::output::{print_message, print_result};
use super::selection::Selection;
use super::setup::{find_own_checkout, report_mistakes};
use flagperf_config::{Overrides, load};
use flagperf_core::exit_code;
use flagperf_prepare::catalogue;
use flagperf_scaffold::{
    Checkout, CheckoutLock, Scaffold, ScaffoldError, case_name, missing_overlay, new_case, new_engine, new_model_case,
    new_operator, new_vendor, runs_model,
};

#[derive(Debug, Subcommand)]
pub(super) enum NewCommand {
    /// Create a case that classifies random images, or that runs an ONNX file: configs/NAME and scripts/NAME
    Case {
        /// Name of the case
        #[arg(value_hint = ValueHint::Other)]
        name: String,
        /// Also create the files with which the case is trained: training.yaml and training.rhai
        #[arg(long)]
        training: bool,
        /// Run the model of this ONNX file on drawn inputs instead
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "training")]
        from: Option<PathBuf>,
        /// The size of an open dimension of the inputs of FILE, by its name or as INPUT.AXIS; repeatable
        #[arg(long, value_name = "DIM=SIZE", value_parser = dimension_size, requires = "from")]
        shape: Vec<(String, usize)>,
    },
    /// Create a vendor whose engine computes nothing: vendors/NAME, and an overlay for each case
    Vendor {
        /// Name of the vendor
        #[arg(value_hint = ValueHint::Other)]
        name: String,
    },
    /// Create an engine that returns zeros: a compiler of a vendor
    Engine {
        /// Name of the compiler
        #[arg(value_hint = ValueHint::Other)]
        name: String,
        /// How the vendor brings the engine
        #[arg(long)]
        kind: EngineArgument,
        /// The vendor; by default the one with the name of the engine, which is created if there is none
        #[arg(long, value_name = "VENDOR", value_hint = ValueHint::Other)]
        vendor: Option<String>,
    },
    /// Create an operator of a vendor, for the processor and for CUDA: vendors/VENDOR/operators/NAME
    Operator {
        /// Name of the operator
        name: String,
        /// The vendor
        #[arg(long)]
        vendor: String,
    },
}

/// Creates something new in the checkout that contains the current directory.
pub(super) fn new(what: &NewCommand) -> anyhow::Result<ExitCode> {
    let root = match find_own_checkout()? {
        Ok(root) => root,
        Err(message) => {
            print_message(&message);
            return Ok(ExitCode::from(exit_code::MISTAKE));
        }
    };
    // Held until the files are written: another process then reads the vendor.yaml that this one leaves.
    let _lock = match CheckoutLock::acquire(&root) {
        Ok(lock) => lock,
        Err(error) => return Ok(refuse(&error)),
    };
    let config = match load(&root, &Selection::default().overrides()) {
        Ok(config) => config,
        Err(findings) => return Ok(report_mistakes(&findings)),
    };
    let root = &config.site.flagperf_path;
    let checkout = Checkout { root, config: &config, catalogue: &catalogue(root) };
    let created = match what {
        NewCommand::Case { name, from: Some(file), shape, .. } => {
            new_model_case(name, file, &shape.iter().cloned().collect(), &checkout)
        }
        NewCommand::Case { name, training, .. } => new_case(name, *training, &checkout),
        NewCommand::Vendor { name } => new_vendor(name, &checkout),
        NewCommand::Operator { name, vendor } => new_operator(name, vendor, &checkout),
        NewCommand::Engine { name, kind, vendor } => new_engine(name, (*kind).into(), vendor.as_deref(), &checkout),
    };
    Ok(match created.and_then(|scaffold| scaffold.write(root).map(|()| scaffold)) {
        Ok(scaffold) => print_result(&listing(&scaffold, root), exit_code::OK),
        Err(error) => refuse(&error),
    })
}

/// Returns the name of the case that runs an ONNX file, which is created if there is none of the name of the file.
///
/// # Errors
/// With the exit code, after a message: when the case cannot be created, or is one of another file.
pub(super) fn case_of_file(
    file: &Path,
    shape: &[(String, usize)],
    root: &Path,
    overrides: &Overrides,
) -> Result<String, ExitCode> {
    let _lock = CheckoutLock::acquire(root).map_err(|error| refuse(&error))?;
    let name = case_name(file);
    let config = load(root, overrides).map_err(|findings| report_mistakes(&findings))?;
    let checkout = Checkout { root, config: &config, catalogue: &catalogue(root) };
    let sizes = shape.iter().cloned().collect();
    if root.join("configs").join(&name).symlink_metadata().is_ok() {
        return match runs_model(&name, file, &sizes, &checkout) {
            Ok(true) => {
                let written = missing_overlay(&name, &checkout).write(root);
                written.map(|()| name).map_err(|error| refuse(&error))
            }
            Ok(false) => {
                let file = file.display().to_string().replace('\'', r"'\''");
                print_message(&format!(
                    "error: case `{name}` exists already, and runs another model, another content of the file, or other \
                     shapes\n  hint: create a case of another name: flagperf new case NAME --from '{file}'"
                ));
                Err(ExitCode::from(exit_code::MISTAKE))
            }
            Err(error) => Err(refuse(&error)),
        };
    }
    let scaffold = new_model_case(&name, file, &sizes, &checkout);
    scaffold.and_then(|scaffold| scaffold.write(root)).map_err(|error| refuse(&error))?;
    print_message(&format!("note: created case `{name}`: configs/{name}, scripts/{name}"));
    Ok(name)
}

/// Lists the files, then the commands to type next.
fn listing(scaffold: &Scaffold, root: &Path) -> String {
    let mut out = String::new();
    for (path, what) in scaffold.paths() {
        let _ = writeln!(out, "{what} {}", path.display());
    }
    let is_here = std::env::current_dir().is_ok_and(|here| here == root);
    let change = (!is_here).then(|| format!("cd '{}'", root.display().to_string().replace('\'', r"'\''")));
    if !scaffold.next.is_empty() {
        let _ = writeln!(out, "next:");
    }
    for command in change.iter().filter(|_| !scaffold.next.is_empty()).chain(&scaffold.next) {
        let _ = writeln!(out, "  {command}");
    }
    out
}

fn refuse(error: &ScaffoldError) -> ExitCode {
    let hint = error.hint();
    let hint = if hint.is_empty() { hint } else { format!("\n  hint: {hint}") };
    print_message(&format!("error: {error}{hint}"));
    ExitCode::from(match error {
        ScaffoldError::Write { .. } => exit_code::UNWRITTEN,
        _ => exit_code::MISTAKE,
    })
}
