//! Plans the training of a case: one job for each device.

use serde_json::Value;

use super::planning::Planner;
use super::{CaseSettings, Job, Task, TrainingSettings};
use flagperf_config::{Finding, Origin, Scale, TrainingKey, Vendor, VendorDevice, list_names};
use flagperf_core::precision::Precision;
use flagperf_core::step::{EngineRole, Phase};

/// The scripts of a case that is trained.
const SCRIPTS: [&str; 3] = ["dataloader.rhai", "model.rhai", "training.rhai"];

/// Returns the settings that training.yaml has no keys for: what only inference does, and what the key of the case states.
pub(super) fn fixed_settings(training: &TrainingKey) -> [(String, Value); 5] {
    [
        ("compiler", Value::Null),
        ("repeat", training.repeat.into()),
        ("no_validation", false.into()),
        ("exist_onnx_path", Value::Null),
        ("exist_compiler_path", Value::Null),
    ]
    .map(|(key, value)| (key.to_owned(), value))
}

impl Planner<'_> {
    /// Plans the training; returns its job, and whether it has its engine.
    pub(super) fn plan_training(&mut self, training: &TrainingKey, settings: &CaseSettings) -> (Vec<Job>, bool) {
        let starts_program = self.starts_program();
        if !starts_program {
            self.check_scripts(&SCRIPTS);
            // An evaluation runs the forward function and the evaluator of the case.
            self.check_shared_scripts();
        }
        self.check_scenario(settings, false);
        self.check_hardware(training);
        self.check_intervals();
        if settings.precision == Precision::Tf32 && !starts_program {
            let message = "`precision` is `tf32`; training in TF32 is not supported yet";
            let hint = "set `precision: fp32`, or `bf16` or `fp16` for mixed precision";
            self.add_error("precision", Finding::unplaced(message).with_hint(hint));
            return (Vec::new(), false);
        }
        let settings_of_training = Box::new(self.training_settings(training));
        let processes = settings_of_training.processes;
        if !settings.batch_size.is_multiple_of(processes) {
            let message = format!("`batch_size` {} cannot be divided among {processes} devices", settings.batch_size);
            let hint = "it is the number of samples of a step on all devices: set a multiple of their number";
            self.add_error("batch_size", Finding::unplaced(message).with_hint(hint));
        }
        let settings = &CaseSettings { batch_size: (settings.batch_size / processes).max(1), ..settings.clone() };
        let task = Task::Train { training: settings_of_training, role: EngineRole::Framework };
        let job = self.plan_job(Phase::Train, task, settings, false);
        if let Some(job) = &job {
            self.check_program(job, starts_program);
        }
        let has_engine = job.is_some();
        (job.into_iter().collect(), has_engine)
    }

    /// Warns of hardware that is none of the devices of the vendor.
    fn check_hardware(&mut self, training: &TrainingKey) {
        let Some(Vendor { devices, name: vendor, .. }) = &self.config.vendor else { return };
        let is_hardware = |device: &VendorDevice| {
            training.is_name_in(&device.name) || device.matches.iter().any(|name| training.is_name_in(name))
        };
        // A check of the files alone knows no hardware.
        let is_unknown = training.hardware == Vendor::STAND_IN;
        if is_unknown || devices.is_empty() || devices.iter().any(is_hardware) {
            return;
        }
        let hardware = &training.hardware;
        let message =
            format!("the hardware `{hardware}` in the key is part of the name of no device of vendor `{vendor}`");
        let hint = format!("known devices: {}", list_names(devices.iter().map(|device| device.name.as_str())));
        self.findings.push(Finding::warning(self.case.key.origin.clone(), message).with_hint(hint));
    }

    /// Warns of an interval in epochs that one in steps replaces.
    fn check_intervals(&mut self) {
        let [interval, steps] = ["eval_interval", "eval_steps"].map(|key| &self.case.settings[key]);
        if steps.value.is_null() || interval.origin == Origin::Default {
            return;
        }
        let message = format!("`eval_interval` has no effect: `eval_steps` ({}) states when to evaluate", steps.origin);
        self.findings.push(Finding::warning(interval.origin.clone(), message).with_hint("remove one of the two keys"));
    }

    fn training_settings(&self, training: &TrainingKey) -> TrainingSettings {
        let mut values = self.setting_values();
        let Scale { hosts, devices } = self.case.key.value.scale;
        let processes = hosts * devices;
        if values["eval_batch_size"].is_null() {
            let batch_size = values["batch_size"].as_u64().unwrap_or_default();
            values.insert("eval_batch_size".to_owned(), (batch_size / u64::from(processes)).max(1).into());
        }
        values.insert("hardware".to_owned(), training.hardware.as_str().into());
        values.insert("processes".to_owned(), processes.into());
        let visible = self.config.visible.as_ref().filter(|_| devices > 1);
        let devices_of_host = visible.map(|visible| visible.variable_of_host(devices));
        values.insert("devices_of_host".to_owned(), serde_json::json!(devices_of_host));
        serde_json::from_value(values.into()).expect("every key of training.yaml was read by its type")
    }
}
