//! What a vendor's overlay and `--set` may change, and what is said about it.

use serde_json::Value;

use super::file::File;
use super::key::Key;
use super::parameters::parameter;
use super::yaml::{self, Node};
use super::{
    ConfigProblem, Finding, Origin, Owner, PARAMETERS, SETTINGS, SITE, Sourced, Values, Vendor, known, nearest,
};

/// Keys of `config` that the host sets itself.
const RESERVED: [&str; 6] = ["perf_dir", "data_dir", "log_dir", "vendor", "case", "framework"];

/// The values of a case while its layers are put together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layers {
    /// configurations.yaml over the defaults.
    pub settings: Values,
    /// parameters.yaml.
    pub parameters: Values,
    /// The vendor's own keys.
    pub own: Values,
    /// Keys that `--set` changed.
    pub departures: Vec<String>,
}

impl Layers {
    /// Puts the overlay of `vendor` over the settings. A key of the parameters, of host.yaml or of the host itself,
    /// and a value that changes nothing, are errors; a new key is a warning; a change is noted.
    pub fn overlay(&mut self, file: &File, name: &str, vendor: Option<&Vendor>, findings: &mut Vec<Finding>) {
        for (key, node) in &file.entries {
            let origin = file.origin(node);
            match self.overlay_key(key, node, (name, vendor), &origin) {
                Ok(Some(finding)) => findings.push(finding),
                Ok(None) => {}
                Err(problem) => findings.push(Finding::error(origin, problem)),
            }
        }
    }

    fn overlay_key(
        &mut self,
        key: &str,
        node: &Node,
        (name, vendor): (&str, Option<&Vendor>),
        origin: &Origin,
    ) -> Result<Option<Finding>, ConfigProblem> {
        refuse_foreign(key)?;
        if let Some(found) = self.parameters.get(key) {
            return Err(ConfigProblem::OverlaysParameter { key: key.to_owned(), parameter: found.origin.clone() });
        }
        if parameter(key).is_some() {
            return Err(ConfigProblem::CaseOnly { key: key.to_owned() });
        }
        let Some(setting) = setting(key) else {
            self.own.insert(key.to_owned(), Sourced::new(node.value(), origin.clone()));
            let known = vendor.is_some_and(|vendor| vendor.option_names().any(|option| option == key));
            let names = SETTINGS.iter().chain(PARAMETERS).map(|known| known.name);
            let nearest = nearest(key, names).filter(|_| !known).map(str::to_owned);
            let new = ConfigProblem::NewKey { key: key.to_owned(), vendor: name.to_owned(), nearest };
            return Ok(Some(Finding::warning(origin.clone(), new)));
        };
        if setting.owner == Owner::Case {
            return Err(ConfigProblem::CaseOnly { key: key.to_owned() });
        }
        let value = setting.read(node)?;
        let to = Sourced::new(value, origin.clone());
        let Some(base) = self.settings.insert(key.to_owned(), to.clone()) else { return Ok(None) };
        if base.value == to.value {
            let value = text(&to.value);
            return Err(ConfigProblem::Redundant { key: key.to_owned(), value, base: base.origin });
        }
        let (from, to) = (text(&base.value), text(&to.value));
        let changed = ConfigProblem::Changed { key: key.to_owned(), from, base: base.origin, to };
        Ok(Some(Finding::info(origin.clone(), changed)))
    }

    /// Puts one `--set KEY=VALUE` over everything else.
    pub fn set(&mut self, argument: &str, case: &str, vendor: Option<&Vendor>, findings: &mut Vec<Finding>) {
        let origin = Origin::CommandLine(format!("--set {argument}"));
        match self.set_key(argument, &origin, case, vendor) {
            Ok(departure) => findings.push(Finding::warning(origin, departure)),
            Err(problem) => findings.push(Finding::error(origin, problem)),
        }
    }

    fn set_key(
        &mut self,
        argument: &str,
        origin: &Origin,
        case: &str,
        vendor: Option<&Vendor>,
    ) -> Result<ConfigProblem, ConfigProblem> {
        let (key, value) =
            argument.split_once('=').ok_or_else(|| ConfigProblem::SetSyntax { argument: argument.to_owned() })?;
        let node = yaml::parse(value).map_err(|cause| ConfigProblem::Yaml { reason: cause.reason })?;
        let (layer, value) = if let Some(setting) = setting(key) {
            (&mut self.settings, setting.read(&node)?)
        } else if let Some(parameter) = parameter(key) {
            (&mut self.parameters, parameter.read(&node)?)
        } else if self.parameters.contains_key(key) {
            (&mut self.parameters, node.value())
        } else if self.own.contains_key(key) || vendor.is_some_and(|v| v.option_names().any(|name| name == key)) {
            (&mut self.own, node.value())
        } else {
            refuse_foreign(key)?;
            return Err(self.unknown(key, case, vendor));
        };
        let to = text(&value);
        let base = layer.insert(key.to_owned(), Sourced::new(value, origin.clone()));
        let (from, base) =
            base.map_or_else(|| ("null".to_owned(), Origin::Default), |base| (text(&base.value), base.origin));
        if !self.departures.iter().any(|departure| departure == key) {
            self.departures.push(key.to_owned());
        }
        Ok(ConfigProblem::Departure { key: key.to_owned(), from, base, to })
    }

    fn unknown(&self, key: &str, case: &str, vendor: Option<&Vendor>) -> ConfigProblem {
        let mut names: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
        names.extend(self.parameters.keys().chain(self.own.keys()).map(String::as_str));
        for option in vendor.iter().flat_map(|vendor| vendor.option_names()) {
            if !names.contains(&option) {
                names.push(option);
            }
        }
        ConfigProblem::SetUnknown {
            case: case.to_owned(),
            key: key.to_owned(),
            nearest: nearest(key, names.iter().copied()).map(str::to_owned),
            known: known(names),
        }
    }
}

/// Refuses keys that belong to host.yaml (any letter case) or to the host itself.
pub fn refuse_foreign(key: &str) -> Result<(), ConfigProblem> {
    if RESERVED.contains(&key) {
        return Err(ConfigProblem::Reserved { key: key.to_owned() });
    }
    match SITE.iter().find(|site| site.name.eq_ignore_ascii_case(key)) {
        Some(site) => Err(ConfigProblem::BelongsToHost { key: key.to_owned(), host_key: site.name }),
        None => Ok(()),
    }
}

/// The key of configurations.yaml of this name.
pub fn setting(key: &str) -> Option<&'static Key> {
    SETTINGS.iter().find(|setting| setting.name == key)
}

/// A value as messages and listings show it: texts without quotes.
pub fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
