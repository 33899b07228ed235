//! The pairs that `flagperf lint` checks: each case without a vendor, with every vendor that has an overlay for it, and as
//! host.yaml lists it.

use std::collections::BTreeSet;

use indexmap::IndexMap;
use serde::Serialize;

use super::arguments::LintArguments;
use flagperf_config::{
    CaseConfig, CaseKey, Config, EngineEntry, Environment, Finding, Findings, Origin, Overrides, SettingsFile,
    TrainingKey, Vendor, load, load_without_vendor, unknown_case,
};
use flagperf_core::description::PROGRAM_ENGINE;
use flagperf_core::precision::Precision;
use flagperf_plan::{Catalogue, unknown_vendor};
use flagperf_script::Stage;

/// A case with the framework and the vendor that it is checked with; without both, with its standard values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Pair {
    pub(super) case: String,
    /// The vendor; null for the standard case.
    pub(super) vendor: Option<String>,
    /// The framework; null for the standard case.
    pub(super) framework: Option<String>,
    /// Whether the case is checked for training, and not for inference.
    pub(super) training: bool,
}

/// The configuration of several pairs, which have the same vendor.
pub(super) struct PairGroup {
    vendor: Option<String>,
    pub(super) config: Config,
    pub(super) keys: Vec<CaseKey>,
}

impl PairGroup {
    /// Returns the pair of one of the keys.
    pub(super) fn pair(&self, key: &CaseKey) -> Pair {
        let framework = self.vendor.is_some().then(|| key.framework.clone());
        Pair { case: key.case.clone(), vendor: self.vendor.clone(), framework, training: key.training.is_some() }
    }
}

/// What `flagperf lint` selects pairs from.
pub(super) struct PairSource<'s> {
    pub(super) arguments: &'s LintArguments,
    /// The configuration as host.yaml has it.
    pub(super) host: &'s Config,
    pub(super) catalogue: &'s Catalogue,
}

impl PairSource<'_> {
    /// Checks that the named cases and vendors exist.
    pub(super) fn check_names(&self) -> Vec<Finding> {
        let LintArguments { cases, vendor, .. } = self.arguments;
        let known = self.cases();
        let known = || known.iter().copied();
        let unknown_case = cases
            .iter()
            .filter(|name| !known().any(|case| case == name.as_str()))
            .map(|case| unknown_case(case, known()).at(Origin::CommandLine(case.clone())));
        let vendors = || self.catalogue.vendors.keys().map(String::as_str);
        let unknown_vendor = vendor
            .iter()
            .filter(|name| !vendors().any(|vendor| vendor == name.as_str()))
            .map(|vendor| unknown_vendor(vendor, vendors()).at(Origin::CommandLine(format!("--vendor {vendor}"))));
        unknown_case.chain(unknown_vendor).collect()
    }

    /// Returns the groups of pairs; each pair is in one of them.
    ///
    /// # Errors
    /// When host.yaml cannot be read.
    pub(super) fn groups(&self) -> Result<Vec<PairGroup>, Findings> {
        let mut groups = Vec::new();
        if self.arguments.vendor.is_empty() {
            groups.push(self.listed_group());
            groups.extend(self.standard_groups()?);
        }
        for name in self.catalogue.vendors.keys().filter(|name| self.is_selected(&self.arguments.vendor, name)) {
            groups.push(self.vendor_group(name)?);
        }
        let mut seen = BTreeSet::new();
        for group in &mut groups {
            let keys = std::mem::take(&mut group.keys);
            group.keys = keys.into_iter().filter(|key| seen.insert(group.pair(key))).collect();
        }
        Ok(groups)
    }

    fn is_selected(&self, named: &[String], name: &str) -> bool {
        named.is_empty() || named.iter().any(|other| other == name)
    }

    /// Returns the names of the cases in configs/.
    fn cases(&self) -> Vec<&str> {
        self.catalogue.cases.iter().filter(|(_, case)| case.configured).map(|(name, _)| name.as_str()).collect()
    }

    fn selected_cases(&self) -> Vec<&str> {
        self.cases().into_iter().filter(|case| self.is_selected(&self.arguments.cases, case)).collect()
    }

    fn overrides(&self, cases: Vec<String>) -> Overrides {
        Overrides {
            config: self.arguments.config.clone(),
            cases,
            environment: Environment::read(),
            ..Overrides::default()
        }
    }

    /// Returns the pairs that host.yaml lists.
    fn listed_group(&self) -> PairGroup {
        let config = self.host.clone();
        let mut keys: Vec<CaseKey> = config.cases.iter().map(|case| case.key.value.clone()).collect();
        // A case whose files cannot be read has only findings.
        for key in config.findings.iter().flat_map(|finding| &finding.cases) {
            if !keys.contains(key) {
                keys.push(key.clone());
            }
        }
        keys.retain(|key| self.is_selected(&self.arguments.cases, &key.case));
        PairGroup { vendor: Some(config.site.vendor.clone()), config, keys }
    }

    /// Returns the pairs without a vendor: those that the host runs, for which the engine that computes nothing stands in for every
    /// engine, and those that a program trains.
    fn standard_groups(&self) -> Result<[PairGroup; 2], Findings> {
        let has = |case: &str, file: &SettingsFile| self.catalogue.cases[case].overlays(file).is_some();
        let cases = self.selected_cases();
        let files = cases.iter().flat_map(|case| SettingsFile::ALL.map(|file| (*case, file)));
        let files = files.filter(|(case, file)| has(case, file));
        let keys: Vec<CaseKey> = files.map(|(case, file)| key(case, Vendor::STAND_IN, &file)).collect();
        let overrides = self.overrides(keys.iter().map(ToString::to_string).collect());
        let mut config = load_without_vendor(&self.host.site.flagperf_path, &overrides)?;
        for case in &mut config.cases {
            case.key.origin = case.settings_file();
        }
        let compilers = config.cases.iter().filter_map(|case| case.settings.get("compiler")?.value.as_str());
        let compilers: IndexMap<_, _> = compilers.map(|name| (name.to_owned(), EngineEntry::null())).collect();
        config.vendor.iter_mut().for_each(|vendor| vendor.compilers.clone_from(&compilers));
        let (mut started, mut hosted) = (config.clone(), config);
        started.cases.retain(has_program);
        hosted.cases.retain(|case| !has_program(case));
        for entry in started.vendor.iter_mut().flat_map(|vendor| vendor.frameworks.values_mut()) {
            entry.engine = PROGRAM_ENGINE.to_owned();
        }
        let is_started = |key: &CaseKey| started.cases.iter().any(|case| case.key.value == *key);
        let (programs, keys) = keys.into_iter().partition(is_started);
        Ok([(hosted, keys), (started, programs)].map(|(config, keys)| PairGroup { vendor: None, config, keys }))
    }

    /// Returns whether `file` is that of a training for which a vendor has a script of its own. An inference needs an overlay with a
    /// compiler of the vendor.
    fn adapts_training(&self, case: &str, vendor: &str, file: &SettingsFile) -> bool {
        let folder = self.host.site.flagperf_path.join("scripts").join(case).join(vendor);
        file.name == SettingsFile::TRAINING.name && folder.join(Stage::TrainingAdapter.file()).is_file()
    }

    /// Returns the pairs of a vendor: with each framework, the cases that have an overlay or a training script of the vendor, except
    /// those whose precision only its other frameworks compute in. A case and a vendor that are both named need no overlay.
    fn vendor_group(&self, name: &str) -> Result<PairGroup, Findings> {
        let LintArguments { cases, vendor, .. } = self.arguments;
        let both_are_named = !cases.is_empty() && !vendor.is_empty();
        let selected = self.selected_cases();
        let read = self.catalogue.vendors.get(name).and_then(Option::as_ref);
        let mut keys: Vec<CaseKey> = Vec::new();
        for (case, file) in selected.iter().flat_map(|case| SettingsFile::ALL.map(|file| (*case, file))) {
            let overlays = self.catalogue.cases[case].overlays(&file);
            let is_adapted = || self.adapts_training(case, name, &file);
            if overlays.is_some_and(|vendors| both_are_named || vendors.contains(name) || is_adapted()) {
                keys.extend(read.into_iter().flat_map(|vendor| self.keys_of(case, vendor, &file)));
            }
        }
        let mut config = self.load_pairs(name, &keys)?;
        let is_for_others = |case: &&CaseConfig| read.is_some_and(|vendor| self.is_for_other_frameworks(vendor, case));
        let others: Vec<_> = config.cases.iter().filter(is_for_others).map(|case| case.key.value.clone()).collect();
        if !others.is_empty() {
            keys.retain(|key| !others.contains(key));
            config = self.load_pairs(name, &keys)?;
        }
        for case in &mut config.cases {
            let listed = self.host.cases.iter().find(|listed| listed.key.value == case.key.value);
            let in_vendor = || read.map(|vendor| vendor.origin(&["frameworks", case.key.value.framework_name()]));
            let origin = listed.map(|listed| listed.key.origin.clone()).or_else(in_vendor);
            case.key.origin = origin.unwrap_or(Origin::Default);
        }
        Ok(PairGroup { vendor: Some(name.to_owned()), config, keys })
    }

    /// Loads the configuration of the pairs of a vendor.
    fn load_pairs(&self, vendor: &str, keys: &[CaseKey]) -> Result<Config, Findings> {
        // Without a pair, the files of the site and of the vendor are still read.
        let none = || vec![format!("{}:{}", self.cases().first().unwrap_or(&"none"), Vendor::STAND_IN)];
        let names = if keys.is_empty() { none() } else { keys.iter().map(ToString::to_string).collect() };
        load(&self.host.site.flagperf_path, &Overrides { vendor: Some(vendor.to_owned()), ..self.overrides(names) })
    }

    /// Returns whether the framework of a case does not run it, and another one of the vendor does: it computes in another
    /// precision, or it starts programs and the case has none.
    fn is_for_other_frameworks(&self, vendor: &Vendor, case: &CaseConfig) -> bool {
        let precision = case.settings.get("precision").and_then(|setting| setting.value.as_str());
        let precision = Precision::ALL.into_iter().find(|known| Some(known.name()) == precision);
        let starts = |entry: &EngineEntry| (entry.engine == PROGRAM_ENGINE) == has_program(case);
        let computes = |entry: &EngineEntry| {
            let engine = self.catalogue.engine(&entry.engine);
            engine.zip(precision).is_none_or(|(engine, precision)| engine.supports(precision)) && starts(entry)
        };
        let own = vendor.framework(&case.key.value).map(|(_, entry)| entry);
        own.is_some_and(|own| {
            !starts(own) && vendor.frameworks.values().any(starts)
                || !computes(own) && vendor.frameworks.values().any(computes)
        })
    }

    /// Returns the keys of a case with a vendor: one for each framework of vendor.yaml, and the entries of host.yaml that
    /// add a version to one.
    fn keys_of(&self, case: &str, vendor: &Vendor, file: &SettingsFile) -> Vec<CaseKey> {
        let listed = self.host.site_values.get("CASES").and_then(|listed| listed.value.as_object());
        let listed = listed.into_iter().flat_map(|listed| listed.keys()).filter_map(|key| key.parse().ok());
        let is_own = |key: &CaseKey| key.case == case && key.settings_file().name == file.name;
        let listed = listed.filter(|key: &CaseKey| is_own(key) && vendor.framework(key).is_some());
        let mut keys: Vec<CaseKey> = vendor.frameworks.keys().map(|framework| key(case, framework, file)).collect();
        for key in listed {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys
    }
}

/// Returns whether a program of the case trains it.
fn has_program(case: &CaseConfig) -> bool {
    let command = case.settings.get("command").and_then(|setting| setting.value.as_array());
    command.is_some_and(|command| !command.is_empty())
}

/// Returns the key of a case on one device that is configured from `file`. The hardware of a training stands for any: the
/// sections of an overlay for every size are checked.
fn key(case: &str, framework: &str, file: &SettingsFile) -> CaseKey {
    let is_training = file.name == SettingsFile::TRAINING.name;
    let training = is_training.then(|| TrainingKey { hardware: Vendor::STAND_IN.to_owned(), repeat: 1 });
    CaseKey { training, ..CaseKey::new(case, framework) }
}
