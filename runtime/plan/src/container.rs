//! The recipe, the Python packages and the environment variables of a case.

use std::path::{Path, PathBuf};

use super::Catalogue;
use flagperf_config::{
    CaseKey, Config, Container, ContainerOptions, Finding, Origin, Site, Vendor, did_you_mean, list_names,
};
use flagperf_core::description::Delivery;

/// The file that sets environment variables.
const VARIABLES: &str = "environment_variables.sh";
/// The file with the Python packages that a case requires.
const REQUIREMENTS: &str = "requirements.txt";

/// The container of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseContainer {
    /// Folder of the recipe: `docker_images/<vendor>/<framework>[_<version>]`.
    pub recipe: PathBuf,
    /// The options of the site, or else of the vendor.
    pub options: ContainerOptions,
}

/// Files of a case and its vendor that prepare a worker, whether it runs in a container or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preparation {
    /// Files that set environment variables, in the order in which they are read.
    pub variables: Vec<PathBuf>,
    /// The Python packages that the case requires.
    pub requirements: Option<PathBuf>,
    /// Whether the workers run in a container.
    pub is_container: bool,
}

impl Preparation {
    /// Returns the files that exist for a case. The requirements of the vendor replace those of the case, and those of a
    /// framework replace those of all frameworks.
    pub(super) fn of(site: &Site, key: &CaseKey, catalogue: &Catalogue) -> Self {
        let exists = |path: &PathBuf| (catalogue.is_file)(path);
        let (root, vendor) = (&site.flagperf_path, &site.vendor);
        let case = root.join("scripts").join(&key.case);
        let plain = framework_without_version(&key.framework);
        let mut folders = vec![case.clone(), case.join(plain)];
        if plain != key.framework {
            folders.push(case.join(&key.framework));
        }
        let own = root.join("vendors").join(vendor).join(VARIABLES);
        let of_case = folders.iter().map(|folder| folder.join(VARIABLES));
        let names = [format!("{vendor}_{REQUIREMENTS}"), REQUIREMENTS.to_owned()];
        let mut requirements = names.iter().flat_map(|name| folders.iter().rev().map(move |folder| folder.join(name)));
        Preparation {
            variables: std::iter::once(own).chain(of_case).filter(exists).collect(),
            requirements: requirements.find(exists),
            is_container: site.container == Container::Docker,
        }
    }

    /// Returns whether the plan can query an engine. It cannot if only an image contains the engine, or if the engine needs
    /// packages that are installed later.
    pub(super) fn can_query_engine(&self, delivery: Delivery) -> bool {
        match delivery {
            Delivery::BuiltIn => true,
            Delivery::Installed | Delivery::Library | Delivery::Server => !self.is_container,
            Delivery::Command => !self.is_container && self.requirements.is_none(),
        }
    }
}

/// Returns the name of a framework without the version: `pytorch` for `pytorch_2.1`.
fn framework_without_version(framework: &str) -> &str {
    framework.split_once('_').map_or(framework, |(plain, _)| plain)
}

/// Returns the recipe of a framework, as a path below `docker_images`: the recipe with this name, or, if the case names no
/// version, the only recipe of the framework.
pub(super) fn find_recipe(vendor: &str, framework: &str, catalogue: &Catalogue) -> Result<String, Finding> {
    let exact = format!("{vendor}/{framework}");
    if catalogue.recipes.contains(&exact) {
        return Ok(exact);
    }
    let with_version = format!("{exact}_");
    let versions: Vec<&String> = catalogue.recipes.iter().filter(|recipe| recipe.starts_with(&with_version)).collect();
    if let [only] = versions[..] {
        return Ok(only.clone());
    }
    let of_vendor = format!("{vendor}/");
    let known = list_names(catalogue.recipes.iter().filter_map(|recipe| recipe.strip_prefix(&of_vendor)));
    let message = format!("no container recipe docker_images/{vendor}/{framework}/Dockerfile (known: {known})");
    let hint = "docker_images/README.md describes recipes; without containers, set `CONTAINER: none`";
    Err(Finding::unplaced(message).with_hint(hint))
}

/// Returns the text with the options of every container, and its place: the options of the site, or else of the vendor.
pub(super) fn option_text(config: &Config) -> (&str, Origin) {
    let of_vendor = |vendor: &'_ Vendor| vendor.origin(&["container_options"]);
    let vendor =
        config.vendor.as_ref().and_then(|vendor| Some((vendor.container_options.as_deref()?, of_vendor(vendor))));
    match (&config.site.acce_container_opt, vendor) {
        (Some(text), _) => (text, config.site_values["ACCE_CONTAINER_OPT"].origin.clone()),
        (None, vendor) => vendor.unwrap_or(("", Origin::Default)),
    }
}

/// Returns the options of every container.
pub(super) fn container_options(config: &Config, catalogue: &Catalogue) -> Result<ContainerOptions, Finding> {
    let (text, origin) = option_text(config);
    let mut options = ContainerOptions::parse(text).map_err(|fault| {
        Finding::error(origin.clone(), fault.to_string()).with_hint(did_you_mean(fault.nearest(), ""))
    })?;
    if let Some(path) = options.seccomp_file().map(Path::to_owned) {
        let profile = (catalogue.read_profile)(&path);
        options.seccomp_profile = profile.map_err(|reason| {
            let message = format!("the seccomp profile `{}` {reason}", path.display());
            Finding::error(origin, message).on_machine()
        })?;
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_config::Overrides;
    use flagperf_config::fixture::Checkout;

    fn catalogue(checkout: &Checkout) -> Catalogue {
        Catalogue::read(checkout.root(), Vec::new())
    }

    #[test]
    fn the_requirements_of_a_vendor_replace_those_of_the_case() {
        let key: CaseKey = "toy:frame_2.1".parse().unwrap();
        let found = |files: &[&str]| {
            let checkout = files.iter().fold(Checkout::new(), |checkout, file| checkout.with(file, "x"));
            let site = checkout.load(&Overrides::default()).unwrap().site;
            let Preparation { variables, requirements, .. } = Preparation::of(&site, &key, &catalogue(&checkout));
            let name = |path: &PathBuf| path.strip_prefix(checkout.root()).unwrap().display().to_string();
            (requirements.as_ref().map(name), variables.iter().map(name).collect::<Vec<_>>())
        };
        let required = |files: &[&str]| found(files).0;
        assert_eq!(found(&[]), (None, Vec::new()));
        assert_eq!(required(&["scripts/toy/requirements.txt"]).as_deref(), Some("scripts/toy/requirements.txt"));
        let both = ["scripts/toy/requirements.txt", "scripts/toy/frame/requirements.txt"];
        assert_eq!(required(&both).as_deref(), Some("scripts/toy/frame/requirements.txt"));
        let with_vendor = [both[1], "scripts/toy/chip_requirements.txt", "scripts/toy/other_requirements.txt"];
        assert_eq!(required(&with_vendor).as_deref(), Some("scripts/toy/chip_requirements.txt"));
        let variables = [
            "vendors/chip/environment_variables.sh",
            "scripts/toy/environment_variables.sh",
            "scripts/toy/frame/environment_variables.sh",
            "scripts/toy/frame_2.1/environment_variables.sh",
        ];
        assert_eq!(found(&variables).1, variables);
    }

    #[test]
    fn a_case_without_a_version_uses_the_only_recipe_of_its_framework() {
        let dockerfile = |name: &str| format!("docker_images/chip/{name}/Dockerfile");
        let checkout = Checkout::new().with(&dockerfile("one_2.1"), "").with(&dockerfile("two_1"), "");
        let checkout = checkout.with(&dockerfile("two_2"), "").with(&dockerfile("two"), "");
        let find = |framework: &str| find_recipe("chip", framework, &catalogue(&checkout));
        assert_eq!(find("one").unwrap(), "chip/one_2.1");
        assert_eq!(find("two").unwrap(), "chip/two");
        assert_eq!(find("two_2").unwrap(), "chip/two_2");
        let error = find("one_3").unwrap_err();
        assert_eq!(
            error.message,
            "no container recipe docker_images/chip/one_3/Dockerfile (known: one_2.1, two, two_1, two_2)"
        );
    }
}
