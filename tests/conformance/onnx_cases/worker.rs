//! The process that runs a share of the cases on one engine, and appends each verdict to a file.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use super::case::{Case, Verdict};
use crate::harness::Harness;
use crate::{STACK, subjects};

/// The reason in the line of a case that has begun and not ended.
pub const RUNNING: &str = "running";

/// Runs the cases that the arguments describe: subject, folder of the cases, file of the verdicts, number of the share,
/// number of shares. Cases that the file contains are left out.
pub fn run_worker(arguments: &[String]) -> ExitCode {
    let [subject, folder, results, number, shares] = arguments else { panic!("five arguments") };
    let candidate = subjects::candidates().into_iter().find(|candidate| candidate.name == *subject);
    let candidate = candidate.expect("the name of a candidate");
    let (form, subject) = (*candidate.forms.last().unwrap(), candidate.subject().ok().unwrap());
    let harness = Harness { subject, form };
    let results = Path::new(results);
    let done: HashSet<String> = fs::read_to_string(results).unwrap().lines().map(first_field).collect();
    let mut file = OpenOptions::new().append(true).open(results).unwrap();
    let (number, shares): (usize, usize) = (number.parse().unwrap(), shares.parse().unwrap());
    let share = models(Path::new(folder)).into_iter().skip(number).step_by(shares);
    let rest: Vec<_> = share.filter(|(name, _)| !done.contains(name)).collect();
    let run = move || rest.iter().for_each(|(name, path)| run_case(&harness, name, path, &mut file));
    thread::Builder::new().stack_size(STACK).spawn(run).unwrap().join().unwrap();
    ExitCode::SUCCESS
}

fn first_field(line: &str) -> String {
    line.split('\t').next().unwrap_or_default().to_owned()
}

fn run_case(harness: &Harness, name: &str, model: &Path, file: &mut File) {
    file.write_all(line(name, Verdict::Ended, RUNNING).as_bytes()).unwrap();
    let (verdict, reason) = Case::read(model).run(harness);
    file.write_all(line(name, verdict, &reason).as_bytes()).unwrap();
}

/// Returns the line of a verdict. A later line of a case replaces an earlier one.
pub fn line(case: &str, verdict: Verdict, reason: &str) -> String {
    format!("{case}\t{verdict}\t{}\n", reason.replace(['\n', '\t'], " "))
}

/// Returns the names and paths of all models, in order.
fn models(folder: &Path) -> Vec<(String, PathBuf)> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let models = paths.filter(|path| path.extension().is_some_and(|extension| extension == "onnx"));
    let mut named: Vec<_> =
        models.map(|path| (path.file_stem().unwrap().to_string_lossy().into_owned(), path)).collect();
    named.sort();
    named
}
