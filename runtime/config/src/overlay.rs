//! The rules for what a vendor's overlay and `--set` may change, and the findings about each change.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::file::ConfigFile;
use super::finding::nearest_note;
use super::parameters::find_parameter;
use super::size_section::OverlayPart;
use super::yaml::{self, Node};
use super::{Finding, Origin, Owner, PARAMETERS, SITE, SettingsFile, Sourced, Values, Vendor, list_names, nearest};

/// Keys of `config` that the host sets itself.
pub(super) const RESERVED: [&str; 6] = ["perf_dir", "data_dir", "log_dir", "vendor", "case", "framework"];

/// What to do about a line of an overlay that may not be there.
const DELETE: &str = "delete the line";

/// The values of a case while its layers are merged.
#[derive(Clone, Debug)]
pub struct Layers {
    /// The file of the settings.
    pub file: &'static SettingsFile,
    /// The defaults, then the file.
    pub settings: Values,
    /// The values of parameters.yaml.
    pub parameters: Values,
    /// The values of the vendor's own keys.
    pub vendor_values: Values,
    /// Keys that `--set` changed.
    pub departures: Vec<String>,
    /// The values, before any `--set`, of the keys that `--set` has set.
    pub before_set: Values,
}

impl Layers {
    /// Creates the layers of a case with the settings of its file.
    pub fn new(file: &'static SettingsFile, settings: Values, parameters: Values) -> Self {
        let (vendor_values, departures, before_set) = (Values::new(), Vec::new(), Values::new());
        Layers { file, settings, parameters, vendor_values, departures, before_set }
    }

    /// Applies a part of the overlay of vendor `name` to the settings. A key of parameters.yaml, of host.yaml or of the host
    /// itself is an error, and so is a value that changes nothing; a new key is a warning, unless vendor.yaml lists it as
    /// an option. A new key that vendor.yaml lists, or a changed value, is a note.
    pub fn apply_overlay(
        &mut self,
        part: &OverlayPart<'_>,
        name: &str,
        vendor: Option<&Vendor>,
        findings: &mut Vec<Finding>,
    ) {
        for (key, node) in &part.entries {
            let origin = part.file.origin(node);
            match self.apply_overlay_key(key, node, (name, vendor), &origin) {
                Ok(Some(finding)) => findings.push(finding),
                Ok(None) => {}
                Err(refused) => findings.push(refused.at(origin)),
            }
        }
    }

    fn apply_overlay_key(
        &mut self,
        key: &str,
        node: &Node,
        (name, vendor): (&str, Option<&Vendor>),
        origin: &Origin,
    ) -> Result<Option<Finding>, Finding> {
        check_key_owner(key)?;
        if let Some(found) = self.parameters.get(key) {
            let place = if found.origin == Origin::Default { String::new() } else { format!(" ({})", found.origin) };
            let message = format!("`{key}` is a case parameter{place}; an overlay cannot change it");
            return Err(Finding::unplaced(message).with_hint(DELETE));
        }
        if find_parameter(key).is_some() {
            return Err(case_only(key));
        }
        let Some(setting) = self.file.find(key) else {
            if let Some(other) = SettingsFile::of_key(key) {
                return Err(Finding::unplaced(format!("`{key}` belongs to {}", other.name)).with_hint(DELETE));
            }
            self.vendor_values.insert(key.to_owned(), Sourced::new(node.value(), origin.clone()));
            let known = vendor.is_some_and(|vendor| vendor.has_option(key));
            let names = self.file.keys.iter().chain(PARAMETERS).map(|known| known.name);
            let names = names.chain(vendor.iter().flat_map(|vendor| vendor.option_names()));
            let near = nearest_note(nearest(key, names).filter(|_| !known));
            let message = format!("new key `{key}` of vendor `{name}`{near}");
            let finding = if known { Finding::info } else { Finding::warning };
            return Ok(Some(finding(origin.clone(), message)));
        };
        if setting.owner == Owner::Case {
            return Err(case_only(key));
        }
        let value = setting.read(node)?;
        let to = Sourced::new(value, origin.clone());
        let Some(base) = self.settings.insert(key.to_owned(), to.clone()) else { return Ok(None) };
        if base.value == to.value {
            let (value, base) = (display_value(&to.value), base.origin);
            let message = format!("`{key}` is already `{value}` ({base}); an overlay must change the value");
            return Err(Finding::unplaced(message).with_hint(DELETE));
        }
        let (from, to) = (display_value(&base.value), display_value(&to.value));
        let message = format!("`{key}`: `{from}` ({}) becomes `{to}`", base.origin);
        Ok(Some(Finding::info(origin.clone(), message)))
    }

    /// Applies one `--set KEY=VALUE`, which wins over every other layer. A value that changes nothing is a note.
    pub fn apply_set(&mut self, argument: &str, case: &str, vendor: Option<&Vendor>, findings: &mut Vec<Finding>) {
        let origin = Origin::CommandLine(format!("--set {argument}"));
        let (Ok(finding) | Err(finding)) = self.apply_set_key(argument, &origin, case, vendor);
        findings.push(finding.at(origin));
    }

    /// Returns the finding about the change, or about its refusal.
    fn apply_set_key(
        &mut self,
        argument: &str,
        origin: &Origin,
        case: &str,
        vendor: Option<&Vendor>,
    ) -> Result<Finding, Finding> {
        let no_pair =
            || Finding::unplaced(format!("`{argument}` is not KEY=VALUE")).with_hint("for example --set batch_size=4");
        let (key, value) = argument.split_once('=').ok_or_else(no_pair)?;
        let node = yaml::parse(value).map_err(|cause| Finding::unplaced(cause.reason))?;
        let base = self.standard_value(key, vendor);
        let is_known = base.is_some();
        let (layer, value) = if let Some(setting) = self.file.find(key) {
            (&mut self.settings, setting.read(&node)?)
        } else if let Some(parameter) = find_parameter(key) {
            (&mut self.parameters, parameter.read(&node)?)
        } else if self.parameters.contains_key(key) {
            (&mut self.parameters, node.value())
        } else if self.vendor_values.contains_key(key) || vendor.is_some_and(|vendor| vendor.has_option(key)) {
            (&mut self.vendor_values, node.value())
        } else {
            check_key_owner(key)?;
            return Err(self.unknown_key(key, case, vendor));
        };
        let to = display_value(&value);
        layer.insert(key.to_owned(), Sourced::new(value.clone(), origin.clone()));
        self.before_set.extend(base.clone().map(|base| (key.to_owned(), base)));
        self.departures.retain(|departure| departure != key);
        let base = base.unwrap_or(Sourced::new(Value::Null, Origin::Default));
        let (from, place) = (display_value(&base.value), base.origin);
        if is_known && base.value == value {
            let message = format!("`{key}` is already `{to}` ({place}): no departure from the standard configuration");
            return Ok(Finding::info(origin.clone(), message));
        }
        self.departures.push(key.to_owned());
        let message =
            format!("`{key}`: `{from}` ({place}) becomes `{to}`: a departure from the standard configuration");
        Ok(Finding::warning(origin.clone(), message))
    }

    /// Returns the value of a key before any `--set`: that of the files, or else the default of the vendor's engines.
    fn standard_value(&self, key: &str, vendor: Option<&Vendor>) -> Option<Sourced<Value>> {
        let layers = [&self.before_set, &self.settings, &self.parameters, &self.vendor_values];
        let from_files = layers.iter().find_map(|layer| layer.get(key));
        from_files.cloned().or_else(|| vendor?.option_value(key, &self.vendor_values))
    }

    fn unknown_key(&self, key: &str, case: &str, vendor: Option<&Vendor>) -> Finding {
        let mut names: Vec<&str> = self.file.keys.iter().map(|setting| setting.name).collect();
        names.extend(self.parameters.keys().chain(self.vendor_values.keys()).map(String::as_str));
        for option in vendor.iter().flat_map(|vendor| vendor.option_names()) {
            if !names.contains(&option) {
                names.push(option);
            }
        }
        let qualified: Vec<String> = vendor.iter().flat_map(|vendor| vendor.qualified_names()).collect();
        let near = nearest(key, names.iter().copied().chain(qualified.iter().map(String::as_str)));
        let near = nearest_note(near);
        let outer = key.split_once('.').map(|(outer, _)| outer).filter(|outer| names.contains(outer));
        let whole = outer.map(|outer| format!("give the whole value of `{outer}`, such as '{outer}={{NAME: 0.5}}'; "));
        let hint = format!(
            "{}known keys: {}; an option that vendor.yaml does not list is set as ENGINE.OPTION, where ENGINE is a name in \
             vendor.yaml; `flagperf list options` lists those of the engines of this program",
            whole.unwrap_or_default(),
            list_names(names)
        );
        Finding::unplaced(format!("case `{case}` has no key `{key}`{near}")).with_hint(hint)
    }
}

/// Whether the host puts a value of this name into the configuration that an engine receives.
pub fn is_case_key(name: &str) -> bool {
    let is_parameter = PARAMETERS.iter().any(|key| key.name == name);
    is_parameter || SettingsFile::of_key(name).is_some() || RESERVED.contains(&name)
}

/// Returns the keys of every overlay of a case, whose scripts are in `scripts`; a file that cannot be read has none.
pub fn overlay_keys(scripts: &Path) -> BTreeSet<String> {
    let folder = scripts.file_name().map(|case| scripts.join("../../configs").join(case).join("vendor_config"));
    let entries = folder.and_then(|folder| std::fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| ConfigFile::read(&entry.path(), scripts).ok());
    files.flat_map(|file| file.entries.into_iter().map(|(key, _)| key)).collect()
}

/// Returns whether the host itself sets a key.
pub fn is_reserved(key: &str) -> bool {
    RESERVED.contains(&key)
}

/// Rejects keys of host.yaml (in any letter case) and keys that the host sets itself.
pub fn check_key_owner(key: &str) -> Result<(), Finding> {
    if is_reserved(key) {
        return Err(Finding::unplaced(format!("`{key}` is set by the host itself")));
    }
    match SITE.iter().find(|site| site.name.eq_ignore_ascii_case(key)) {
        Some(site) => Err(Finding::unplaced(format!("`{key}` belongs to host.yaml (`{}`)", site.name))
            .with_hint("site settings are allowed only in host.yaml")),
        None => Ok(()),
    }
}

fn case_only(key: &str) -> Finding {
    let message =
        format!("`{key}` cannot be set by a vendor: it defines what is measured, which is the same for every vendor");
    Finding::unplaced(message).with_hint(DELETE)
}

/// Formats a value for messages and listings, strings without quotes.
pub fn display_value(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
