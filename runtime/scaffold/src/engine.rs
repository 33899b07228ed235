//! A new engine of a vendor: a plug-in in C, or a sidecar in Python.

use std::path::{Path, PathBuf};

use super::entry::add_entry;
use super::vendor::{add_vendor, description, first_case};
use super::{Checkout, NULL, Scaffold, ScaffoldError, name};
use flagperf_config::{Vendor, list_names, nearest};

/// The folder of a vendor's engines.
const ENGINES: &str = "engines";
/// The key of vendor.yaml that lists them.
const COMPILERS: &str = "compilers";

/// How a vendor brings an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineKind {
    /// A shared library in C.
    Plugin,
    /// A process in Python.
    Sidecar,
}

impl EngineKind {
    /// Returns the name of the engine's file in the folder of engines, and its text.
    fn file(self, name: &str, folder: &Path) -> (String, String) {
        let (extension, text) = match self {
            EngineKind::Plugin => ("c", include_str!("../templates/engine/plugin.c")),
            EngineKind::Sidecar => ("py", include_str!("../templates/engine/sidecar.py")),
        };
        let text = text.replace("@FOLDER@", &folder.to_string_lossy()).replace("@NAME@", name);
        (format!("{name}.{extension}"), text)
    }

    /// Returns the engine's entry under `compilers` in vendor.yaml.
    fn entry(self, name: &str) -> String {
        match self {
            EngineKind::Plugin => {
                format!("{name}: {{engine: plugin, library: {ENGINES}/lib{name}.so, options: {{threads: 0}}}}")
            }
            EngineKind::Sidecar => format!(
                "{name}: {{engine: sidecar, command: [python3, -m, flagperf_sidecar, {ENGINES}/{name}.py], options: {{threads: 0}}}}"
            ),
        }
    }

    /// Returns the command that builds the engine.
    fn build(self, name: &str, folder: &Path) -> Option<String> {
        let folder = folder.display();
        (self == EngineKind::Plugin).then(|| {
            format!("cc -O2 -shared -fPIC -I runtime/plugin/include {folder}/{name}.c -o {folder}/lib{name}.so")
        })
    }
}

/// Returns a new engine, a compiler of `vendor`. Without `vendor` it belongs to the vendor of the same name, which is
/// created if there is none.
///
/// # Errors
/// When the name is not allowed, the vendor is unknown or already has such a compiler, or its vendor.yaml cannot be read
/// or changed.
pub fn new_engine(
    name: &str,
    kind: EngineKind,
    vendor: Option<&str>,
    checkout: &Checkout<'_>,
) -> Result<Scaffold, ScaffoldError> {
    name::check("an engine", name)?;
    if vendor.is_none() && checkout.catalogue.engines.iter().any(|engine| engine.name == name) {
        let reason = "an engine of this program has it";
        return Err(ScaffoldError::Reserved { what: "an engine", name: name.to_owned(), reason });
    }
    let owner = vendor.unwrap_or(name);
    let is_known = checkout.catalogue.vendors.contains_key(owner);
    if let Some(vendor) = vendor.filter(|_| !is_known) {
        return Err(unknown_vendor(vendor, checkout));
    }
    let mut scaffold = Scaffold::default();
    let folder = Path::new("vendors").join(owner).join(ENGINES);
    let build = kind.build(name, &folder);
    scaffold.next.extend(build.clone());
    match is_known {
        true => change_vendor(&mut scaffold, owner, name, kind, checkout)?,
        false => {
            let description = add_entry(&description(owner), COMPILERS, &kind.entry(name));
            let description = description.expect("the template lists one compiler per line");
            add_vendor(&mut scaffold, owner, name, description, build.as_deref(), checkout)?;
            let case = first_case(checkout).map(|case| format!("--case {case} --vendor {owner}"));
            scaffold.next.extend(
                case.iter().flat_map(|case| [format!("flagperf doctor {case}"), format!("flagperf run {case}")]),
            );
        }
    }
    let (file, text) = kind.file(name, &folder);
    scaffold.add(folder.join(file), text);
    Ok(scaffold)
}

/// Adds the engine to the vendor.yaml of a vendor that exists. Its overlays stay as they are. Zeros agree only with those
/// of a framework that computes nothing: without one, the engine cannot pass a run before it computes.
fn change_vendor(
    scaffold: &mut Scaffold,
    owner: &str,
    name: &str,
    kind: EngineKind,
    checkout: &Checkout<'_>,
) -> Result<(), ScaffoldError> {
    let vendor = Vendor::read(checkout.root, owner).map_err(ScaffoldError::Vendor)?;
    if vendor.compilers.contains_key(name) {
        let place = vendor.origin(&["compilers", name]).to_string();
        return Err(ScaffoldError::Taken { vendor: owner.to_owned(), name: name.to_owned(), place });
    }
    let path: PathBuf = ["vendors", owner, "vendor.yaml"].iter().collect();
    let text = std::fs::read_to_string(checkout.root.join(&path))
        .map_err(|cause| ScaffoldError::Write { path: path.clone(), cause })?;
    let entry = kind.entry(name);
    let changed = add_entry(&text, COMPILERS, &entry).filter(|changed| {
        Vendor::parse(checkout.root, owner, changed).is_ok_and(|changed| changed.compilers.contains_key(name))
    });
    let place = || vendor.origin(&["compilers"]).to_string();
    let changed = changed.ok_or_else(|| ScaffoldError::NoPlace { place: place(), entry })?;
    scaffold.change(path, text, changed);
    let Some(case) = first_case(checkout) else { return Ok(()) };
    let framework = vendor.frameworks.iter().find(|(_, framework)| framework.engine == NULL);
    let key = framework.map_or(case.to_owned(), |(framework, _)| format!("{case}:{framework}"));
    let arguments = format!("--case {key} --vendor {owner} --set compiler={name}");
    scaffold.next.push(format!("flagperf doctor {arguments}"));
    scaffold.next.extend(framework.map(|_| format!("flagperf run {arguments}")));
    Ok(())
}

pub(super) fn unknown_vendor(vendor: &str, checkout: &Checkout<'_>) -> ScaffoldError {
    let names = || checkout.catalogue.vendors.keys().map(String::as_str);
    ScaffoldError::UnknownVendor {
        vendor: vendor.to_owned(),
        known: list_names(names()),
        nearest: nearest(vendor, names()).map(str::to_owned),
    }
}
