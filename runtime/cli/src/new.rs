//! `flagperf new`: creates a case, a vendor or an engine, and prints the next commands.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use clap::{Subcommand, ValueHint};

use super::argument_values::EngineArgument;
use super::output::{print_message, print_result};
use super::selection::Selection;
use super::setup::{find_own_checkout, report_mistakes};
use flagperf_config::load;
use flagperf_core::exit_code;
use flagperf_prepare::catalogue;
use flagperf_scaffold::{
    Checkout, CheckoutLock, Scaffold, ScaffoldError, new_case, new_engine, new_operator, new_vendor,
};

#[derive(Debug, Subcommand)]
pub(super) enum NewCommand {
    /// Create a case that classifies random images: configs/NAME and scripts/NAME
    Case {
        /// Name of the case
        #[arg(value_hint = ValueHint::Other)]
        name: String,
        /// Also create the files with which the case is trained: training.yaml and training.rhai
        #[arg(long)]
        training: bool,
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
        NewCommand::Case { name, training } => new_case(name, *training, &checkout),
        NewCommand::Vendor { name } => new_vendor(name, &checkout),
        NewCommand::Operator { name, vendor } => new_operator(name, vendor, &checkout),
        NewCommand::Engine { name, kind, vendor } => new_engine(name, (*kind).into(), vendor.as_deref(), &checkout),
    };
    Ok(match created.and_then(|scaffold| scaffold.write(root).map(|()| scaffold)) {
        Ok(scaffold) => print_result(&listing(&scaffold, root), exit_code::OK),
        Err(error) => refuse(&error),
    })
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
