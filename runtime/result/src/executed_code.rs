//! Code that a phase executed and that its record does not describe.

use std::path::Path;

use super::{LibraryRecord, PhaseRecord, Record, UnknownCode};
use flagperf_core::event::SidecarFacts;

/// Names of a kind that a reason lists.
const NAMED_MAX: usize = 3;
/// The folders of installed packages of Python.
const PACKAGE_FOLDERS: [&str; 2] = ["site-packages", "dist-packages"];
/// Beginning of the name of the loader, which executes the program that its argument names.
const LOADER: &str = "ld-";
/// Beginnings of the names of Python's program and library.
const PYTHON: [&str; 2] = ["python3", "libpython3"];

/// Returns the code of each phase that the record does not describe.
pub(super) fn untraced_code(record: &Record) -> Vec<String> {
    let reason = |phase: &PhaseRecord| {
        let code = |reason: UnknownCode| {
            let found = phase.libraries.iter().filter(move |library| library.unknown == Some(reason));
            found.map(|library| library.path.as_str()).collect::<Vec<_>>()
        };
        let removed = shorten(&code(UnknownCode::Removed));
        let removed = removed.map(|names| format!("code was executed from files that do not exist: {names}"));
        // The user of a container may be another one.
        let unreadable = code(UnknownCode::Unreadable);
        let unreadable = shorten(&unreadable).filter(|_| record.provenance.image.is_none());
        let unreadable = unreadable.map(|names| format!("processes hid the code that they executed: {names}"));
        let facts = measured_sidecar(phase);
        let program = facts.and_then(|facts| other_program(facts, phase));
        let modules = facts.and_then(|facts| hidden_modules(facts, phase));
        let server = phase.engine.as_ref().and_then(|engine| engine.server.as_ref());
        let server =
            server.map(|server| format!("the server {} computed, whose code is not in the record", server.url));
        let name = phase.phase.name();
        [removed, unreadable, program, modules, server]
            .into_iter()
            .flatten()
            .map(move |text| format!("{name}: {text}"))
            .collect::<Vec<_>>()
    };
    record.phases.iter().flat_map(reason).collect()
}

/// Returns the code whose content is not known without being suspicious.
pub(super) fn unhashed_code(record: &Record) -> Vec<String> {
    let mut unknown = Vec::new();
    for phase in &record.phases {
        let is_unreadable = |library: &LibraryRecord| {
            library.unknown == Some(UnknownCode::Unreadable) && record.provenance.image.is_some()
        };
        let no_hash = |library: &LibraryRecord| library.unknown.is_none() && library.sha256.is_none();
        let found = phase.libraries.iter().filter(|library| is_unreadable(library) || no_hash(library));
        let names: Vec<&str> = found.map(|library| library.path.as_str()).collect();
        unknown.extend(
            shorten(&names).map(|names| format!("{}: the content of executed code: {names}", phase.phase.name())),
        );
        if measured_sidecar(phase).is_some() {
            unknown.push(format!(
                "{}: code that the sidecar read as text or unloaded again, such as Python modules that it did not report",
                phase.phase.name()
            ));
        }
    }
    unknown
}

fn measured_sidecar(phase: &PhaseRecord) -> Option<&SidecarFacts> {
    phase.engine.as_ref()?.sidecar.as_ref().filter(|_| !phase.measured.is_empty())
}

/// Returns the paths of the files that a phase executed.
fn executed_paths(phase: &PhaseRecord) -> impl Iterator<Item = &Path> {
    phase.libraries.iter().filter(|library| library.unknown.is_none()).map(|library| Path::new(&library.path))
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns that the program of a sidecar's command is not the one that computed, but started it.
fn other_program(facts: &SidecarFacts, phase: &PhaseRecord) -> Option<String> {
    let program = facts.program.as_deref()?;
    let path = Path::new(program);
    // Which files a process of another user executes is unknown, and named as such.
    let is_hidden = phase.libraries.iter().any(|library| library.unknown == Some(UnknownCode::Unreadable));
    let is_executed = is_hidden || executed_paths(phase).any(|executed| executed == path);
    let does_not_compute = match () {
        () if !is_executed || file_name(path).starts_with(LOADER) => "a script or a program that another one replaced",
        () if facts.maps_buffers == Some(false) => "and another process computes",
        () => return None,
    };
    Some(format!("the sidecar's `command` starts `{program}`, {does_not_compute}"))
}

/// Returns why the modules that a sidecar reported are not all that it executed.
fn hidden_modules(facts: &SidecarFacts, phase: &PhaseRecord) -> Option<String> {
    if let Some(names) = shorten(&facts.modules_not_hashed) {
        return Some(format!("modules of the sidecar have no hash: {names}"));
    }
    if facts.modules_sha256.is_empty() {
        let is_python = |path: &Path| PYTHON.iter().any(|beginning| file_name(path).starts_with(beginning));
        return executed_paths(phase)
            .any(is_python)
            .then(|| "the sidecar executed Python and reported no modules".to_owned());
    }
    // A library that is no module, such as libopenblas.so.0, is loaded by its name.
    let is_module = |path: &&Path| {
        let is_package = path.iter().any(|part| PACKAGE_FOLDERS.iter().any(|folder| part == *folder));
        let name = file_name(path);
        name.ends_with(".so") && (name.contains(".cpython-") || (is_package && !name.starts_with("lib")))
    };
    let is_reported = |path: &Path| facts.modules_sha256.keys().any(|reported| path.starts_with(reported));
    let hidden: Vec<String> = executed_paths(phase)
        .filter(is_module)
        .filter(|path| !is_reported(path))
        .map(|path| path.display().to_string())
        .collect();
    shorten(&hidden).map(|names| format!("the sidecar executed modules that it did not report: {names}"))
}

/// Returns the first names; `None` without any.
fn shorten(names: &[impl AsRef<str>]) -> Option<String> {
    let shown: Vec<&str> = names.iter().take(NAMED_MAX).map(AsRef::as_ref).collect();
    match names.len() {
        0 => None,
        count if count > NAMED_MAX => Some(format!("{} and {} more", shown.join(", "), count - NAMED_MAX)),
        _ => Some(shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use indexmap::IndexMap;

    use super::*;
    use crate::testing;
    use flagperf_core::event::EngineFacts;
    use flagperf_core::step::{Phase, Step};
    use flagperf_core::units::Bytes;

    fn library(path: &str) -> LibraryRecord {
        LibraryRecord {
            path: path.to_owned(),
            size_bytes: Bytes(1),
            sha256: Some("1".to_owned()),
            note: None,
            unknown: None,
        }
    }

    /// Returns the record of an inference by a sidecar with these modules.
    fn record(modules: &[&str], libraries: Vec<LibraryRecord>) -> Record {
        let modules_sha256 =
            modules.iter().map(|path| ((*path).to_owned(), "1".to_owned())).collect::<IndexMap<_, _>>();
        let sidecar = Some(SidecarFacts { modules_sha256, ..SidecarFacts::default() });
        let engine = Some(EngineFacts { sidecar, ..EngineFacts::default() });
        let measured = vec![testing::measurement(Step::Inference)];
        let phase = PhaseRecord { engine, measured, libraries, ..PhaseRecord::new(Phase::Infer) };
        Record { phases: vec![phase], ..testing::record() }
    }

    #[test]
    fn code_from_memory_and_hidden_processes_are_reasons() {
        let unknown = |name: &str, reason| LibraryRecord::unknown(name.to_owned(), reason);
        let libraries = vec![
            library("/usr/lib/libc.so.6"),
            unknown("/memfd:code (deleted)", UnknownCode::Removed),
            unknown("worker", UnknownCode::Unreadable),
        ];
        let found = record(&[], libraries);
        let reasons = [
            "infer: code was executed from files that do not exist: /memfd:code (deleted)",
            "infer: processes hid the code that they executed: worker",
        ];
        assert_eq!(untraced_code(&found), reasons);
        let mut contained = found;
        contained.provenance.image = Some(crate::ImageRecord::default());
        assert_eq!(untraced_code(&contained), reasons[..1]);
        let unknown = [
            "infer: the content of executed code: worker",
            "infer: code that the sidecar read as text or unloaded again, such as Python modules that it did not report",
        ];
        assert_eq!(unhashed_code(&contained), unknown);
    }

    #[test]
    fn a_program_that_starts_another_one_is_named() {
        let with_program = |program: &str, executed: &str, maps_buffers: bool| {
            let mut record = record(&["/vendors/chip/own.py"], vec![library(executed)]);
            let facts = record.phases[0].engine.as_mut().unwrap().sidecar.as_mut().unwrap();
            (facts.program, facts.maps_buffers) = (Some(program.to_owned()), Some(maps_buffers));
            untraced_code(&record)
        };
        let python = "/usr/bin/python3.11";
        assert_eq!(with_program(python, python, true), [""; 0]);
        let (replaced, other) = ("a script or a program that another one replaced", "and another process computes");
        for (program, executed, maps_buffers, why) in [
            ("/home/a/bin/python3", python, true, replaced),
            ("/usr/bin/env", python, true, replaced),
            ("/usr/lib/ld-linux-x86-64.so.2", "/usr/lib/ld-linux-x86-64.so.2", true, replaced),
            ("/bin/dash", "/bin/dash", false, other),
        ] {
            let reason = format!("infer: the sidecar's `command` starts `{program}`, {why}");
            assert_eq!(with_program(program, executed, maps_buffers), [reason]);
        }
    }

    #[test]
    fn a_sidecar_that_hides_modules_is_named() {
        let python = "/venv/lib/python3.11";
        let torch = format!("{python}/site-packages/torch");
        let libraries = || {
            vec![
                library("/usr/bin/python3.11"),
                library(&format!("{torch}/_C.cpython-311-x86_64-linux-gnu.so")),
                library(&format!("{python}/site-packages/nvidia/cublas/lib/libcublas.so.12")),
            ]
        };
        assert_eq!(untraced_code(&record(&[&torch], libraries())), [""; 0]);
        assert_eq!(unhashed_code(&record(&[&torch], libraries())).len(), 1);
        let hidden = format!(
            "infer: the sidecar executed modules that it did not report: {torch}/_C.cpython-311-x86_64-linux-gnu.so"
        );
        assert_eq!(untraced_code(&record(&["/vendors/chip/own.py"], libraries())), [hidden]);
        let silent = "infer: the sidecar executed Python and reported no modules";
        assert_eq!(untraced_code(&record(&[], libraries())), [silent]);
        assert_eq!(untraced_code(&record(&[], vec![library("/vendors/chip/engine")])), [""; 0], "no Python");
    }
}
