//! Checks of a whole plan: the site, result folders shared by several cases, and keys without effect on this machine.

use serde_json::Value;

use super::container::{container_options, option_text};
use super::container_checks::check_container_options;
use super::options::{invalid_choices, invalid_defaults};
use super::{CasePlan, Catalogue, UnavailableEngine};
use flagperf_config::{
    CaseConfig, CaseKey, Config, Container, Finding, LauncherChoice, Origin, Scale, Sourced, Vendor, did_you_mean,
    is_host_name, is_local, list_names, nearest,
};

/// Keys of host.yaml that apply only to containers, and those that apply only to other machines.
const FOR_CONTAINERS: [&str; 2] = ["SHM_SIZE", "ACCE_CONTAINER_OPT"];
const FOR_MACHINES: [&str; 2] = ["SSH_PORT", "SSH_CONFIG"];
/// A key of FlagPerf that applies only to its containers, and one that applies only to training on several devices.
const FOR_SSH_INSIDE: &str = "HOSTS_PORTS";
const FOR_TRAINING: &str = "MASTER_PORT";
/// What a run uses without containers and without other machines, and in place of the last two.
const NO_CONTAINERS: &str = "`CONTAINER` is none";
const NO_MACHINES: &str = "`HOSTS` lists only this machine";
const NO_SSH_INSIDE: &str = "flagperf starts processes in containers without it";
const NO_TRAINING: &str = "no case is one";

/// Reports an unknown vendor, an unknown monitor, and machines and containers that are not available.
pub(super) fn check_site(config: &Config, catalogue: &Catalogue, findings: &mut Vec<Finding>) {
    let site = &config.site;
    let origin = |key: &str| config.site_values[key].origin.clone();
    // One that stands in has no folder.
    if config.vendor.is_none() && !catalogue.vendors.contains_key(&site.vendor) {
        let known = catalogue.vendors.keys().map(String::as_str);
        findings.push(unknown_vendor(&site.vendor, known).at(origin("VENDOR")));
    }
    findings.extend(config.vendor.as_ref().and_then(|vendor| unknown_monitor(vendor, catalogue)));
    if let Some(vendor) = &config.vendor {
        findings.extend(invalid_defaults(vendor, catalogue));
        findings.extend(config.cases.iter().flat_map(|case| invalid_choices(vendor, case, catalogue)));
    }
    check_hosts(config, findings);
    check_devices(config, catalogue, findings);
    if site.container == Container::Docker {
        check_container_options(config, catalogue, findings);
        let options = container_options(config, catalogue).unwrap_or_default();
        match (catalogue.check_container_engine)(&options) {
            Ok(found) => findings.extend(found.into_iter().map(|finding| finding.at(option_text(config).1))),
            Err(UnavailableEngine { reason, remedy }) => {
                let message = format!("`CONTAINER: docker` cannot be used on this machine: {reason}");
                findings.push(Finding::error(origin("CONTAINER"), message).with_hint(remedy).on_machine());
            }
        }
    }
}

/// Returns the error about a vendor that has no folder.
pub fn unknown_vendor<'n>(vendor: &str, known: impl Iterator<Item = &'n str> + Clone) -> Finding {
    let hint = did_you_mean(nearest(vendor, known.clone()), "a vendor is a folder in vendors/");
    Finding::unplaced(format!("unknown vendor `{vendor}` (known: {})", list_names(known))).with_hint(hint)
}

/// Reports hosts that cannot be used, and cases that need more hosts or devices than the configuration gives them.
fn check_hosts(config: &Config, findings: &mut Vec<Finding>) {
    let hosts = &config.site.hosts;
    let origin = &config.site_values["HOSTS"].origin;
    for (index, host) in hosts.iter().enumerate() {
        if !is_host_name(host) {
            let form = "letters, digits, `.`, `-`, `_`, and `@` after a user's name";
            findings.push(Finding::error(origin.clone(), format!("`{host}` is not a host name ({form})")));
        } else if hosts[..index].contains(host) {
            findings.push(Finding::error(origin.clone(), format!("host `{host}` is listed twice")));
        }
    }
    // An agent runs its own part of a case.
    if config.replica.is_some() {
        return;
    }
    for case in &config.cases {
        let (key, needed) = (&case.key.value, case.key.value.scale.hosts);
        if needed as usize > hosts.len() && config.knows_hosts && !config.in_job {
            let message = format!("case `{key}` needs {needed} hosts, but `HOSTS` lists {}", hosts.len());
            let finding = Finding::error(case.key.origin.clone(), message);
            findings.push(finding.with_hint("add hosts, or change the entry of `CASES`"));
        }
        if needed > 1 && config.site.launcher == LauncherChoice::Local {
            let message =
                format!("`LAUNCHER: local` starts everything on this machine, but case `{key}` needs {needed} hosts");
            let finding = Finding::error(case.key.origin.clone(), message);
            findings.push(finding.with_hint("remove `LAUNCHER`, or measure several devices with `:1xN`"));
        }
    }
}

/// Reports cases on several devices of each host whose workers would use the same device, and those of which nothing shows
/// whether they do.
fn check_devices(config: &Config, catalogue: &Catalogue, findings: &mut Vec<Finding>) {
    let Some(vendor) = &config.vendor else { return };
    let identifies = vendor.monitor.as_deref().is_some_and(|monitor| catalogue.device_monitors.contains(&monitor));
    for case in config.cases.iter().filter(|case| case.key.value.scale.devices > 1) {
        let mut own = Vec::new();
        if config.visible.is_none() {
            own.push(no_device_variable(&case.key));
        } else if !identifies {
            own.push(unidentified_devices(&case.key, &vendor.name));
        }
        Finding::assign(&mut own, &case.key.value);
        findings.extend(own);
    }
}

/// What to do if no variable selects the device of a process.
pub const DEVICE_VARIABLE_HINT: &str = "name the environment variable by which the driver selects devices, for example \
     `ACCE_VISIBLE_DEVICE_ENV_NAME: CUDA_VISIBLE_DEVICES` in host.yaml, or `visible_devices` in vendor.yaml";

fn no_device_variable(case: &Sourced<CaseKey>) -> Finding {
    let (key, devices) = (&case.value, case.value.scale.devices);
    let message =
        format!("case `{key}` needs {devices} devices of each host, but no variable selects the device of a worker");
    Finding::error(case.origin.clone(), message).with_hint(DEVICE_VARIABLE_HINT)
}

fn unidentified_devices(case: &Sourced<CaseKey>, vendor: &str) -> Finding {
    let (key, devices) = (&case.value, case.value.scale.devices);
    let message = format!(
        "case `{key}` runs {devices} workers on each host, and nothing will show whether each uses a device of its own: vendor \
         `{vendor}` has no monitor that identifies devices"
    );
    let hint = "workers on the processor share it, and the sum of their figures is not a sum over devices; for other devices, check \
                that the engine follows `ACCE_VISIBLE_DEVICE_ENV_NAME` of host.yaml, such as \
                `ACCE_VISIBLE_DEVICE_ENV_NAME: CUDA_VISIBLE_DEVICES`, or `visible_devices` of vendor.yaml";
    Finding::warning(case.origin.clone(), message).with_hint(hint)
}

/// Returns an error when the vendor's monitor is unknown.
fn unknown_monitor(vendor: &Vendor, catalogue: &Catalogue) -> Option<Finding> {
    let names = || catalogue.monitors.iter().copied();
    let monitor = vendor.monitor.as_ref().filter(|monitor| !names().any(|name| name == monitor.as_str()))?;
    let message = format!("unknown monitor `{monitor}` of vendor `{}` (known: {})", vendor.name, list_names(names()));
    let hint = did_you_mean(nearest(monitor, names()), "`flagperf doctor` lists the monitors");
    Some(Finding::error(vendor.origin(&["monitor"]), message).with_hint(hint))
}

/// Reports every case whose result folder belongs to an earlier case: the later record would replace the earlier one.
pub(super) fn check_result_folders(config: &Config, cases: &[CasePlan], findings: &mut Vec<Finding>) {
    for (index, case) in cases.iter().enumerate() {
        let Some(first) = cases[..index].iter().find(|first| first.folder == case.folder) else { continue };
        let origin = config.cases.iter().find(|configured| configured.key.value == case.key);
        let origin = origin.map_or(Origin::Default, |configured| configured.key.origin.clone());
        let (key, folder) = (&case.key, case.key.folder());
        let message = format!("cases `{}` and `{key}` have the same result folder `{folder}`", first.key);
        let hint = "run one of them at a time with --case, or rename a case";
        findings.push(Finding::error(origin, message).with_hint(hint));
    }
}

/// Adds a note for each key that is set without effect, because a run starts no container or uses no other machine.
pub(super) fn note_unused_keys(config: &Config, findings: &mut Vec<Finding>) {
    let has_containers = config.site.container == Container::Docker;
    let keys = FOR_CONTAINERS.into_iter().filter(|_| !has_containers).map(|key| (key, "containers", NO_CONTAINERS));
    let is_here = config.knows_hosts && config.site.hosts.iter().all(|host| is_local(host)) && config.replica.is_none();
    let machines = FOR_MACHINES.into_iter().filter(|_| is_here).map(|key| (key, "other machines", NO_MACHINES));
    let trains = |case: &CaseConfig| case.key.value.training.is_some() && case.key.value.scale != Scale::ONE;
    let training =
        (!config.cases.iter().any(trains)).then_some((FOR_TRAINING, "a training on several devices", NO_TRAINING));
    let inside = (FOR_SSH_INSIDE, "SSH inside containers", NO_SSH_INSIDE);
    for (key, what, instead) in keys.chain(machines).chain([inside]).chain(training) {
        let value = &config.site_values[key];
        if value.origin != Origin::Default && value.value != Value::Null {
            findings.push(no_effect(key, what, instead).at(value.origin.clone()));
        }
    }
    if let Some(vendor) = config.vendor.as_ref().filter(|vendor| !has_containers && vendor.container_options.is_some())
    {
        let key = "container_options";
        findings.push(no_effect(key, "containers", NO_CONTAINERS).at(vendor.origin(&[key])));
    }
}

/// Returns the note about a key that applies only to what a run does not use, because it uses something else instead.
fn no_effect(key: &str, what: &str, instead: &str) -> Finding {
    let message = format!("`{key}` has no effect: it applies to {what}, and {instead}");
    Finding::info(Origin::Default, message)
}

#[cfg(test)]
mod tests {
    use super::super::{Catalogue, Plan, PlanErrors, plan};
    use flagperf_config::fixture::{Checkout, HOST, messages_of, set};
    use flagperf_config::{Overrides, SITE};
    use flagperf_core::description::{EngineDescription, EngineOption, OptionKind};
    use flagperf_core::event::Level;

    fn planned(checkout: &Checkout, overrides: &Overrides) -> Result<Plan, PlanErrors> {
        let engines = ["interpreter", "rten"]
            .map(|name| EngineDescription { options: None, ..EngineDescription::unrestricted(name, "") });
        let engines = engines.to_vec();
        let monitors = vec!["nvml", "processor"];
        plan(&checkout.load(overrides)?, &Catalogue { monitors, ..Catalogue::read(checkout.root(), engines) })
    }

    fn errors(checkout: &Checkout, overrides: &Overrides) -> Vec<String> {
        messages_of(Level::Error, &planned(checkout, overrides).expect_err("something is wrong").0)
    }

    #[test]
    fn two_cases_with_one_result_folder_are_refused_with_both_names() {
        let parameters = "image_size: 224\n";
        let vendor = std::fs::read_to_string(Checkout::new().path("vendors/chip/vendor.yaml")).unwrap();
        let checkout = Checkout::new()
            .with("configs/host.yaml", "VENDOR: chip\nCASES:\n    \"toy:x_frame\": data\n    \"toy_x:frame\": data\n")
            .with("configs/toy_x/configurations.yaml", flagperf_config::fixture::CONFIGURATIONS)
            .with("configs/toy_x/parameters.yaml", parameters)
            .with("scripts/toy_x/dataloader.rhai", "")
            .with("scripts/toy_x/model.rhai", "")
            .with("scripts/toy_x/forward.rhai", "")
            .with("scripts/toy_x/evaluator.rhai", "")
            .with(
                "vendors/chip/vendor.yaml",
                &vendor.replace("frameworks:\n", "frameworks:\n    x_frame: {engine: interpreter}\n"),
            );
        assert_eq!(
            errors(&checkout, &Overrides::default()),
            [
                "configs/host.yaml:4: cases `toy:x_frame` and `toy_x:frame` have the same result folder `toy_x_frame`\n  \
              hint: run one of them at a time with --case, or rename a case"
            ]
        );
    }

    #[test]
    fn keys_for_containers_and_other_machines_are_noted_where_they_are_set() {
        let host = format!(
            "{HOST}SSH_PORT: \"22\"\nHOSTS_PORTS: [\"2222\"]\nMASTER_PORT: 29501\nSHM_SIZE: 1G\n\
             ACCE_CONTAINER_OPT: --gpus all\nPIP_SOURCE: null\n"
        );
        let vendor = std::fs::read_to_string(Checkout::new().path("vendors/chip/vendor.yaml")).unwrap();
        let checkout = Checkout::new()
            .with("configs/host.yaml", &host)
            .with("vendors/chip/vendor.yaml", &format!("{vendor}container_options: --gpus all\n"));
        let effects = |checkout: &Checkout| {
            let mut notes = messages_of(Level::Info, &planned(checkout, &Overrides::default()).unwrap().findings);
            notes.retain(|note| !note.contains("has no overlay"));
            notes
        };
        let noted = effects(&checkout);
        let line = |line: usize, key: &str, what: &str, instead: &str| {
            format!("configs/host.yaml:{line}: `{key}` has no effect: it applies to {what}, and {instead}")
        };
        let (none, machine) = ("`CONTAINER` is none", "`HOSTS` lists only this machine");
        let inside = "flagperf starts processes in containers without it";
        assert_eq!(
            noted,
            [
                line(7, "SHM_SIZE", "containers", none),
                line(8, "ACCE_CONTAINER_OPT", "containers", none),
                line(4, "SSH_PORT", "other machines", machine),
                line(5, "HOSTS_PORTS", "SSH inside containers", inside),
                line(6, "MASTER_PORT", "a training on several devices", "no case is one"),
                format!(
                    "vendors/chip/vendor.yaml:11: `container_options` has no effect: it applies to containers, and {none}"
                ),
            ]
        );
        assert_eq!(effects(&Checkout::new()), Vec::<String>::new());
        for name in super::FOR_CONTAINERS
            .iter()
            .chain(&super::FOR_MACHINES)
            .chain(&[super::FOR_SSH_INSIDE, super::FOR_TRAINING])
        {
            assert!(SITE.iter().any(|key| key.name == *name), "{name}");
        }
    }

    #[test]
    fn threads_beyond_the_limit_are_refused_before_anything_starts() {
        let limit = "must be a whole number from 0 to 1024";
        assert_eq!(
            errors(&Checkout::new(), &set(&["num_workers=10000"])),
            [format!("--set num_workers=10000: `num_workers` {limit}, not `10000`")]
        );
        assert_eq!(
            errors(&Checkout::new(), &set(&["threads=100000"])),
            [format!("--set threads=100000: `threads` {limit}, not `100000`")]
        );
        assert_eq!(
            errors(&Checkout::new(), &set(&["threads=many"])),
            [format!("--set threads=many: `threads` {limit}, not `\"many\"`")],
            "reported once, although both engines accept threads"
        );
        let plan = planned(&Checkout::new(), &set(&["num_workers=0"])).unwrap();
        assert_eq!(plan.cases[0].settings.num_workers, 0);
    }

    #[test]
    fn threads_of_an_engine_that_no_case_uses_are_checked() {
        let vendor = "name: chip\nabout: a\nframeworks: {frame: {engine: interpreter}}\ncompilers:\n    fast: {engine: rten}\n    \
                      other: {engine: rten, options: {threads: x}}\n";
        let checkout = Checkout::new().with("vendors/chip/vendor.yaml", vendor);
        assert_eq!(
            errors(&checkout, &Overrides::default()),
            ["vendors/chip/vendor.yaml:6: `threads` must be a whole number from 0 to 1024, not `\"x\"`"]
        );
    }

    #[test]
    fn an_unknown_monitor_is_reported_with_its_line() {
        let vendor =
            "name: chip\nabout: a\nframeworks: {frame: {engine: interpreter}}\ncompilers: {fast: {engine: rten}}\n";
        let checkout = Checkout::new().with("vendors/chip/vendor.yaml", &format!("{vendor}monitor: nvm\n"));
        assert_eq!(
            errors(&checkout, &Overrides::default()),
            ["vendors/chip/vendor.yaml:5: unknown monitor `nvm` of vendor `chip` (known: nvml, processor)\n  \
                 hint: did you mean `nvml`?"]
        );
    }

    #[test]
    fn an_option_that_its_engine_does_not_have_is_reported_although_no_case_uses_the_entry() {
        const OPTIONS: &[EngineOption] =
            &[EngineOption { name: "optimize", kind: OptionKind::Boolean, default: "true", about: "whether it fuses" }];
        let vendor = "name: chip\nabout: a\nframeworks: {frame: {engine: interpreter}}\ncompilers:\n    fast: {engine: rten}\n    \
                      other:\n        engine: rten\n        options:\n            optimise: true\n            optimize: maybe\n            batch_size: 7\n";
        let checkout = Checkout::new().with("vendors/chip/vendor.yaml", vendor).overlay("fp16: false\nbatch_size: 8\n");
        let engines = ["interpreter", "rten"]
            .map(|name| EngineDescription { options: Some(OPTIONS), ..EngineDescription::unrestricted(name, "") });
        let config = checkout.load(&Overrides::default()).unwrap();
        let errors = plan(&config, &Catalogue::read(checkout.root(), engines.to_vec())).unwrap_err();
        assert_eq!(
            messages_of(Level::Error, &errors.0),
            [
                "vendors/chip/vendor.yaml:9: engine `rten`: option `optimise`: unknown (known: optimize, threads; nearest: optimize)",
                "vendors/chip/vendor.yaml:10: engine `rten`: option `optimize`: `\"maybe\"` is not true or false",
                "vendors/chip/vendor.yaml:11: engine `rten`: option `batch_size`: the name is taken by a key of the \
                 case",
            ]
        );
    }
}
