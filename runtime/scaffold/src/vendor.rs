//! A new vendor: the engine `null` stands in for its framework and its compiler.

use std::path::Path;

use super::case::{overlay, overlay_path};
use super::{Checkout, Scaffold, ScaffoldError, name};
use flagperf_config::SettingsFile;
use flagperf_plan::CaseFolder;

/// The compiler of a new vendor.
const COMPILER: &str = "mock";

/// Returns a new vendor, with an overlay for the inference of each case.
///
/// # Errors
/// When the name is not allowed, or the vendor has a folder or an overlay already.
pub fn new_vendor(name: &str, checkout: &Checkout<'_>) -> Result<Scaffold, ScaffoldError> {
    name::check("a vendor", name)?;
    let mut scaffold = Scaffold::default();
    add_vendor(&mut scaffold, name, COMPILER, description(name), None, checkout)?;
    if let Some(case) = first_case(checkout) {
        let arguments = format!("--case {case} --vendor {name}");
        scaffold.next = vec![format!("flagperf plan {arguments}"), format!("flagperf run {arguments}")];
    }
    Ok(scaffold)
}

/// Returns the text of a new vendor's vendor.yaml.
pub(super) fn description(name: &str) -> String {
    include_str!("../templates/vendor/vendor.yaml").replace("@NAME@", name)
}

/// Adds the files of a vendor: its folder, and an overlay that selects `compiler` for each case. `build` is the command
/// that builds the compiler, for the README.
pub(super) fn add_vendor(
    scaffold: &mut Scaffold,
    name: &str,
    compiler: &str,
    description: String,
    build: Option<&str>,
    checkout: &Checkout<'_>,
) -> Result<(), ScaffoldError> {
    let folder = Path::new("vendors").join(name);
    if checkout.root.join(&folder).symlink_metadata().is_ok() {
        return Err(ScaffoldError::Exists { path: folder });
    }
    scaffold.add(folder.join("vendor.yaml"), description);
    let mut readme = include_str!("../templates/vendor/README.md").replace("@NAME@", name);
    if let Some(build) = build {
        readme +=
            &format!("\nTo build the compiler `{compiler}`, at the root of the checkout:\n\n```sh\n{build}\n```\n");
    }
    scaffold.add(folder.join("README.md"), readme);
    let has_inference = |case: &CaseFolder| case.configured && case.overlays(&SettingsFile::INFERENCE).is_some();
    let cases = checkout.catalogue.cases.iter().filter(|(_, case)| has_inference(case));
    for (case, _) in cases {
        scaffold.add(overlay_path(case, name), overlay(compiler));
    }
    Ok(())
}

/// Returns the first case that host.yaml lists: its data directory is known.
pub(super) fn first_case<'c>(checkout: &'c Checkout<'_>) -> Option<&'c str> {
    checkout.config.cases.first().map(|case| case.key.value.case.as_str())
}
