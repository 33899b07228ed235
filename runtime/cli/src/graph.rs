//! `flagperf graph`: shows an ONNX file, and the difference between two.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Subcommand, ValueHint};
use flagperf_onnx::rewrite::diff;
use flagperf_onnx::{
    Graph, InferError, UninferredNode, ValueInfo, check, check_limits, infer_shapes, infer_values, read_onnx,
};
use flagperf_onnx_exec::{ProofError, ProofLimits, compare};

use super::graph_page::graph_page;
use super::graph_text::{diff_text, graph_text};
use super::output::{PAGE, check_replaceable, print_mistake, print_result, write_file};
use flagperf_core::exit_code;
use flagperf_core::text::one_line;
use flagperf_report::columns;

/// Exit code: a graph is not valid.
const EXIT_INVALID: u8 = 1;
/// Exit code: the graphs do not compute the same.
const EXIT_DIFFERENT: u8 = 1;
/// Exit code: the graphs could not be compared.
const EXIT_NOT_COMPARED: u8 = 2;
/// The seed of the inputs on which graphs are compared.
const PROOF_SEED: u64 = 0;

#[derive(Debug, Subcommand)]
pub(super) enum GraphCommand {
    /// Show what a graph consists of, and which composite operators it has as several nodes, with the reasons for near misses.
    /// Exits with 1 if it is not valid
    Show {
        /// The ONNX file
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// Also list every node with its shapes and types
        #[arg(long)]
        nodes: bool,
    },
    /// Show which nodes differ between two graphs. Exits with 1 if --compare finds other inputs or outputs, or that they compute
    /// something else, and with 2 if they cannot be compared
    Diff {
        /// The ONNX file before
        #[arg(value_hint = ValueHint::FilePath)]
        before: PathBuf,
        /// The ONNX file after
        #[arg(value_hint = ValueHint::FilePath)]
        after: PathBuf,
        /// Also compute both graphs in f64, on drawn inputs, and compare their outputs
        #[arg(long)]
        compare: bool,
        /// Also write a page that draws both graphs
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        html: Option<PathBuf>,
    },
}

pub(super) fn graph(command: &GraphCommand) -> anyhow::Result<ExitCode> {
    let result = match command {
        GraphCommand::Show { file, nodes } => read(file).map(|graph| show(&graph, *nodes)),
        GraphCommand::Diff { before, after, compare, html } => {
            show_difference(before, after, *compare, html.as_deref())
        }
    };
    Ok(match result {
        Ok((text, code)) => print_result(&text, code),
        Err(message) => print_mistake(&message),
    })
}

fn read(file: &Path) -> Result<Graph, String> {
    let mut graph = read_onnx(file).map_err(|error| one_line(&error.to_string()).into_owned())?;
    // Files rarely declare the values between inputs and outputs.
    infer_shapes(&mut graph);
    check_limits(&graph).map_err(|error| format!("`{}`: {}", file.display(), one_line(&error.to_string())))?;
    Ok(graph)
}

/// Returns the text of a graph; what makes it invalid comes last.
fn show(graph: &Graph, nodes: bool) -> (String, u8) {
    let text = graph_text(graph, nodes, columns());
    match check(graph) {
        Ok(()) => (format!("{text}{}", unchecked(graph)), exit_code::OK),
        Err(error) => (format!("{text}not valid: {}\n", one_line(&error.to_string())), EXIT_INVALID),
    }
}

/// Names the operators that are not known, whose nodes are not checked.
fn unchecked(graph: &Graph) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for UninferredNode { reason, .. } in infer_values(graph).1 {
        if let InferError::UnknownOperator(operator) = reason {
            *counts.entry(one_line(&operator).into_owned()).or_default() += 1;
        }
    }
    let counts: Vec<String> = counts.into_iter().map(|(operator, count)| format!("{operator} {count}")).collect();
    if counts.is_empty() { String::new() } else { format!("not checked, because unknown: {}\n", counts.join(", ")) }
}

fn show_difference(before: &Path, after: &Path, proves: bool, page: Option<&Path>) -> Result<(String, u8), String> {
    let [before_graph, after_graph] = [read(before)?, read(after)?];
    let difference = diff(&before_graph, &after_graph);
    let difference = difference.map_err(|error| one_line(&error.to_string()).into_owned())?;
    let mut text = diff_text(&difference, &before_graph, &after_graph, columns());
    let mut code = exit_code::OK;
    let names =
        |values: &[ValueInfo]| values.iter().map(|value| one_line(&value.name).into_owned()).collect::<Vec<_>>();
    let of_interface = [
        ("inputs", &before_graph.inputs, &after_graph.inputs),
        ("outputs", &before_graph.outputs, &after_graph.outputs),
    ];
    for (what, before, after) in of_interface.map(|(what, before, after)| (what, names(before), names(after))) {
        if proves && before != after {
            code = EXIT_DIFFERENT;
            text += &format!("the {what} are {} before, and {} after\n", before.join(", "), after.join(", "));
        }
    }
    if proves {
        text += &match compare(&before_graph, &after_graph, PROOF_SEED, ProofLimits::default()) {
            Ok(compared) if compared.elements == 0 => {
                format!("the same nodes compute all outputs ({})\n", compared.same_outputs)
            }
            Ok(compared) => format!(
                "computed in f64: {} elements differ by at most {:.1e} of the largest one (at most {:.0e})\n",
                compared.elements, compared.error, compared.limit
            ),
            Err(ProofError::Unproved(reason)) => {
                // Other inputs or outputs are a difference already.
                code = if code == exit_code::OK { EXIT_NOT_COMPARED } else { code };
                format!("not compared: {}\n", one_line(&reason))
            }
            Err(differs) => {
                code = EXIT_DIFFERENT;
                format!("computed in f64: {}\n", one_line(&differs.to_string()))
            }
        };
    }
    if let Some(path) = page {
        check_replaceable(path, &PAGE)?;
        let titles = [before, after].map(|path| path.display().to_string());
        let html = graph_page(&difference, [&before_graph, &after_graph], &titles);
        write_file(path, &html)?;
        text += &format!("page  {}\n", path.display());
    }
    Ok((text, code))
}
