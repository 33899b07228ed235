//! Finds the keys of `config` that the Python class of a sidecar reads although no file sets them: reading one ends
//! FlagPerf's class with an `AttributeError`, often minutes after the start. The adaptor of sidecars finds the reads in
//! the text of the class, so nothing is known of a class that only runs elsewhere.

use std::collections::BTreeSet;

use super::{EngineChoice, Job};
use flagperf_config::{Finding, Origin};
use flagperf_core::description::ConfigRead;
use flagperf_core::text::one_line;

/// The Python module that runs FlagPerf's engine classes: `python3 -m flagperf_sidecar FILE`.
pub const ADAPTOR: &str = "flagperf_sidecar";

/// The keys of a case that lead to its data, which an engine must not know.
pub const DATA_KEYS: [&str; 2] = ["weights", "default_data"];

/// What the adaptor and the worker add to the `config` of a class.
const ADDED_KEYS: [&str; 5] = ["perf_dir", "log_dir", "threads", "input_specs", "output_specs"];

/// Returns the file that the adaptor runs in a command, relative to the vendor's folder.
pub fn class_file(command: &[String]) -> Option<&str> {
    let adaptor = command.iter().position(|word| word == ADAPTOR)?;
    command.get(adaptor + 1).map(String::as_str)
}

/// Returns a finding for each key that the class of a job's engine reads and that nothing sets: an error if the class always
/// reads it, otherwise a warning.
pub(super) fn unset_class_keys(job: &Job, reads: &[ConfigRead]) -> Vec<Finding> {
    let engine = &job.engine;
    let Some(file) = class_file(&engine.command) else { return Vec::new() };
    let path = engine.folder.join(file);
    let root = job.scripts.ancestors().nth(2);
    let name = root.and_then(|root| path.strip_prefix(root).ok()).unwrap_or(&path).display().to_string();
    let given = given_keys(job);
    let unset = reads.iter().filter(|read| !given.contains(read.key.as_str()));
    unset.map(|read| finding(read, &name, engine, &job.vendor)).collect()
}

fn given_keys(job: &Job) -> BTreeSet<&str> {
    let config = job.config.keys().map(String::as_str).filter(|key| !DATA_KEYS.contains(key));
    config.chain(job.engine.options.keys().map(String::as_str)).chain(ADDED_KEYS).collect()
}

fn finding(read: &ConfigRead, file: &str, engine: &EngineChoice, vendor: &str) -> Finding {
    let (key, name) = (one_line(&read.key), engine.entry_name());
    let origin = Origin::Script { file: file.into(), line: read.line, column: read.column };
    let when = if read.is_certain { "reads" } else { "may read" };
    let message =
        format!("the class of `{name}` {when} `config.{key}`, which neither the case nor vendor `{vendor}` sets");
    let hint = format!(
        "set `{key}` in the overlay of the vendor for the case, or give it a default among the `options` of `{name}` in \
         vendors/{vendor}/vendor.yaml"
    );
    let finding = if read.is_certain { Finding::error } else { Finding::warning };
    finding(origin, message).with_hint(hint)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{catalogue, engines, runnable};
    use super::super::{Catalogue, EngineOnMachine, plan};
    use super::ConfigRead;
    use flagperf_config::fixture::{messages_of, set};
    use flagperf_core::description::{Delivery, EngineDescription};
    use flagperf_core::event::Level;

    const VENDOR: &str = "name: chip\nabout: a\nframeworks: {frame: {engine: interpreter}}\ncompilers:\n    \
        fast: {engine: sidecar, command: [python3, -m, flagperf_sidecar, engines/fast.py], options: {listed: null}}\n";

    /// Plans the case with a class that reads these keys, and returns the errors and the warnings.
    fn planned(keys: &[&str], is_certain: bool, overlay: &str) -> [Vec<String>; 2] {
        let checkout = runnable()
            .with("vendors/chip/vendor.yaml", VENDOR)
            .with("vendors/chip/engines/fast.py", "")
            .overlay(overlay);
        let sidecar = EngineDescription {
            delivery: Delivery::Command,
            options: None,
            ..EngineDescription::unrestricted("sidecar", "")
        };
        let engines = engines().into_iter().chain([sidecar]).collect();
        let read = |key: &&str| ConfigRead { key: (*key).to_owned(), line: 3, column: 22, is_certain };
        let reads: Vec<_> = keys.iter().map(read).collect();
        let describe = Box::new(move |choice: &crate::EngineChoice| {
            let config_reads = if choice.command.is_empty() { Vec::new() } else { reads.clone() };
            Ok(EngineOnMachine { config_reads, ..EngineOnMachine::default() })
        });
        let config = checkout.load(&set(&[])).unwrap();
        let catalogue = Catalogue { engines, describe, ..catalogue(checkout.root()) };
        let findings = plan(&config, &catalogue).map_or_else(|errors| errors.0, |plan| plan.findings);
        [Level::Error, Level::Warning].map(|level| messages_of(level, &findings))
    }

    #[test]
    fn a_key_that_a_class_reads_and_no_file_sets_is_an_error_at_its_line() {
        let fused = |overlay| planned(&["fused_blocks"], true, overlay);
        let [errors, warnings] = fused("fp16: false\n");
        assert_eq!(
            errors,
            [
                "vendors/chip/engines/fast.py:3:22: the class of `fast` reads `config.fused_blocks`, which neither the case nor \
              vendor `chip` sets\n  hint: set `fused_blocks` in the overlay of the vendor for the case, or give it a default \
              among the `options` of `fast` in vendors/chip/vendor.yaml"
            ]
        );
        assert_eq!(warnings, [""; 0]);
        assert_eq!(fused("fp16: false\nfused_blocks: true\n")[0], [""; 0], "the overlay sets it");
        assert_eq!(fused("fp16: false\nfast.fused_blocks: true\n")[0], [""; 0], "as an option of the engine");
    }

    #[test]
    fn a_key_of_the_case_of_the_vendor_or_of_the_adaptor_is_set() {
        let keys =
            ["batch_size", "fp16", "precision", "image_size", "vendor", "listed", "perf_dir", "log_dir", "input_specs"];
        assert_eq!(planned(&keys, true, "fp16: false\n")[0], [""; 0]);
        let [errors, _] = planned(&["weights"], true, "fp16: false\n");
        assert!(errors[0].contains("`config.weights`"), "no vendor's code learns where the data is: {errors:?}");
    }

    #[test]
    fn a_key_that_a_class_reads_only_on_a_condition_is_a_warning() {
        let [errors, warnings] = planned(&["shapes"], false, "fp16: false\n");
        assert_eq!(errors, [""; 0]);
        assert!(warnings[0].contains("`fast` may read `config.shapes`"), "{warnings:?}");
    }
}
