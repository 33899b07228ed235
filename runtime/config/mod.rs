//! YAML files, environment and command line made into typed values, each with its origin.
//!
//! Knows no engine and no device: whether a name stands for something real is asked in `plan`.

mod case;
mod case_key;
mod choice;
mod entries;
pub mod env;
mod file;
mod finding;
mod flops;
#[cfg(test)]
mod hostile_tests;
mod key;
mod load;
mod nearest;
mod origin;
mod overlay;
#[cfg(test)]
mod parameter_tests;
mod parameters;
mod problem;
mod settings;
mod site;
#[cfg(test)]
mod tests;
mod vendor;
mod visible;
mod yaml;

#[cfg(test)]
pub(crate) mod fixture;

pub use case::CaseConfig;
pub use case_key::CaseKey;
pub use env::{Environment, cache_folder, python_path};
pub use finding::{Explained, Finding, Findings};
pub use flops::{FlopsError, flops};
pub use key::{Key, Kind, Owner, THREADS_MAX};
pub use load::{Config, Overrides, find_root, load};
pub use nearest::{known, nearest};
pub use origin::{Origin, Sourced, Values, effective};
pub use overlay::text as display;
pub use parameters::{OnBadSample, PARAMETERS, Parameters};
pub use problem::ConfigProblem;
pub use settings::SETTINGS;
pub use site::{Container, SITE, Site, is_local};
pub use vendor::{BackendEntry, Device, EngineEntry, PackageEntry, Peak, PluginEntry, Vendor};
pub use visible::VisibleDevices;
