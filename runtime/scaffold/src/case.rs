//! A new case: it classifies random images with a small model.

use std::path::{Path, PathBuf};

use indexmap::IndexMap;

use super::{Checkout, NULL, Scaffold, ScaffoldError, name};
use flagperf_config::{EngineEntry, Vendor};
use flagperf_core::description::Delivery;

const OVERLAY: &str = include_str!("../templates/case/overlay.yaml");

/// What the README of a case that can be trained has, too.
const TRAININGS: &str = include_str!("../templates/case/trainings.md");

/// The files of a case: the folder in the checkout, the file, its text.
const FILES: [(&str, &str, &str); 5] = [
    ("configs", "configurations.yaml", include_str!("../templates/case/configurations.yaml")),
    ("configs", "parameters.yaml", include_str!("../templates/case/parameters.yaml")),
    ("scripts", "README.md", include_str!("../templates/case/README.md")),
    ("scripts", "dataloader.rhai", include_str!("../templates/case/dataloader.rhai")),
    ("scripts", "model.rhai", include_str!("../templates/case/model.rhai")),
];

/// The files with which a case can be trained, too.
const TRAINING_FILES: [(&str, &str, &str); 2] = [
    ("configs", "training.yaml", include_str!("../templates/case/training.yaml")),
    ("scripts", "training.rhai", include_str!("../templates/case/training.rhai")),
];

/// Returns a new case, which can be trained if `has_training`, with an overlay for the site's vendor and for each vendor that has the engine `null`.
///
/// # Errors
/// When the name is not allowed, or the case has a folder already.
pub fn new_case(name: &str, has_training: bool, checkout: &Checkout<'_>) -> Result<Scaffold, ScaffoldError> {
    check_new(name, checkout)?;
    let mut scaffold = Scaffold::default();
    let training = TRAINING_FILES.iter().filter(|_| has_training);
    for (folder, file, text) in FILES.iter().chain(training) {
        let table = if has_training && *file == "README.md" { TRAININGS } else { "" };
        scaffold.add(Path::new(folder).join(name).join(file), text.replace("@NAME@", name) + table);
    }
    // A folder with the data may be there already.
    let data = Path::new("datasets").join(name);
    if !checkout.root.join(&data).exists() {
        scaffold.add(data.join("README.md"), include_str!("../templates/case/data.md").replace("@NAME@", name));
    }
    scaffold.next = vec![format!("flagperf plan --case {name}")];
    add_overlays(name, &mut scaffold, checkout);
    if let Some(vendor) = checkout.config.vendor.as_ref().filter(|_| has_training) {
        let framework = vendor.default_framework.as_deref().unwrap_or("FRAMEWORK");
        scaffold.next.push(format!("flagperf run --case {name}:{framework}:{}:1:1:1", vendor.name));
    }
    Ok(scaffold)
}

/// Checks the name of a new case, and that it has no folders.
pub(super) fn check_new(name: &str, checkout: &Checkout<'_>) -> Result<(), ScaffoldError> {
    name::check_case(name)?;
    let mut folders = ["configs", "scripts"].map(|folder| Path::new(folder).join(name)).into_iter();
    match folders.find(|path| checkout.root.join(path).symlink_metadata().is_ok()) {
        Some(path) => Err(ScaffoldError::Exists { path }),
        None => Ok(()),
    }
}

/// Adds an overlay for each vendor with which a new case runs at once, and the commands that run it.
pub(super) fn add_overlays(name: &str, scaffold: &mut Scaffold, checkout: &Checkout<'_>) {
    for (vendor, compiler) in compilers(checkout) {
        scaffold.add(overlay_path(name, vendor), overlay(compiler));
        if *vendor != checkout.config.site.vendor {
            scaffold.next.push(format!("flagperf run --case {name} --vendor {vendor}"));
        }
    }
    scaffold.next.push(format!("flagperf run --case {name}"));
}

/// Returns the overlay of the site's vendor for a case that has none.
pub fn missing_overlay(name: &str, checkout: &Checkout<'_>) -> Scaffold {
    let mut scaffold = Scaffold::default();
    let vendor = &checkout.config.site.vendor;
    let path = overlay_path(name, vendor);
    if let (false, Some(compiler)) = (checkout.root.join(&path).exists(), compilers(checkout).get(vendor.as_str())) {
        scaffold.add(path, overlay(compiler));
    }
    scaffold
}

/// Returns the path of a vendor's overlay for a case.
pub(super) fn overlay_path(case: &str, vendor: &str) -> PathBuf {
    Path::new("configs").join(case).join("vendor_config").join(format!("{vendor}_configurations.yaml"))
}

/// Returns the text of an overlay that selects a compiler.
pub(super) fn overlay(compiler: &str) -> String {
    OVERLAY.replace("@COMPILER@", compiler)
}

/// Returns the compilers with which a new case runs at once, by vendor: of the site's vendor, the first one that is part
/// of this program, or else its first one; of any other vendor, the one that computes nothing.
fn compilers<'c>(checkout: &'c Checkout<'_>) -> IndexMap<&'c str, &'c str> {
    let is_built_in = |entry: &EngineEntry| {
        checkout.catalogue.engine(&entry.engine).is_some_and(|engine| engine.delivery == Delivery::BuiltIn)
    };
    let first = |vendor: &'c Vendor, wanted: &dyn Fn(&EngineEntry) -> bool| {
        vendor.compilers.iter().find(|(_, entry)| wanted(entry)).map(|(name, _)| name.as_str())
    };
    let vendors = checkout.catalogue.vendors.iter().filter_map(|(name, vendor)| Some((name, vendor.as_ref()?)));
    vendors
        .filter_map(|(name, vendor)| {
            let compiler = match *name == checkout.config.site.vendor {
                true => first(vendor, &is_built_in).or_else(|| first(vendor, &|_| true)),
                false => first(vendor, &|entry| entry.engine == NULL),
            };
            Some((name.as_str(), compiler?))
        })
        .collect()
}
