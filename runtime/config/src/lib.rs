//! Reads YAML files, the environment and the command line into typed values, each with its origin.
//!
//! Knows no engine and no device: `plan` checks whether the names refer to something that exists.

mod case;
mod case_key;
mod choice;
mod container_option_fault;
mod container_options;
mod dataset;
#[cfg(test)]
mod dataset_tests;
mod decoder;
mod entries;
pub mod env;
mod file;
mod finding;
mod flops;
#[cfg(test)]
mod hostile_tests;
mod key;
mod load;
mod monitor_command;
mod operator;
mod origin;
mod overlay;
#[cfg(test)]
mod parameter_tests;
mod parameters;
mod precision;
mod prices;
#[cfg(test)]
mod schema;
#[cfg(test)]
mod schema_tests;
mod scenario;
mod section;
mod served_model;
mod settings;
mod site;
mod size_section;
mod stand_in;
mod switches;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod training_tests;
mod vendor;
mod visible;
mod yaml;

#[cfg(feature = "testing")]
pub mod fixture;

pub use case::{CaseConfig, PARAMETERS_FILE, default_data_folder};
pub use case_key::{CaseKey, Scale, TrainingKey};
pub use container_option_fault::ContainerOptionFault;
pub use container_options::{ContainerOptions, DeviceFile, ResourceLimit, Volume, WORKER_SOCKET_FOLDER};
pub use dataset::{DATASET_FILE, DatasetDescription, DatasetFile, DatasetFolder};
pub use decoder::DecoderEntry;
pub use env::{Environment, backends_folder, cache_folder, python_path};
pub use file::{ConfigFile, display_name, read_text};
pub use finding::{Cause, Finding, Findings, did_you_mean, missing_key, unknown_case};
pub use flops::{FlopsError, parse_flops};
pub use key::{ConfigKey, KEYS_FOLDER, Owner, SHARED_SCRIPTS, THREADS_MAX, ValueKind, is_shared_script};
pub use load::{Config, HostFile, Overrides, Replica, find_root, load, load_without_vendor};
pub use monitor_command::{MONITOR_SCRIPT, MonitorCommand};
pub use operator::{
    OPERATOR_FILE, OPERATORS_FOLDER, OperatorBuild, OperatorCase, OperatorDescription, OperatorForm, operator_libraries,
};
pub use origin::{Origin, Sourced, Values, merge_layers};
pub use overlay::{check_key_owner, display_value, is_case_key, is_reserved, overlay_keys};
pub use parameters::{
    BadSamplePolicy, InputCost, PARAMETERS, Parameters, check_parameter_name, default_unit, find_parameter,
};
pub use prices::{DevicePrice, Prices};
pub use scenario::{BOUNDS_MIN, QUERIES_MAX};
pub use section::{SectionKey, SectionKind};
pub use served_model::{SERVED_MODEL_FILE, ServedModel, ServedModelPlaces};
pub use settings::{SETTINGS, SettingsFile, TRAINING_SETTINGS};
pub use site::{BusyHost, Container, LauncherChoice, SITE, Site, is_host_name, is_local};
pub use size_section::is_size_section;
pub use switches::Switch;
pub use vendor::{
    BackendEntry, DevicePeak, EngineEntry, OperatorShell, PackageEntry, PluginEntry, Vendor, VendorDevice,
    option_of_entry,
};
pub use visible::VisibleDevices;
pub use yaml::{Content, Node, Place, YamlError, parse as parse_yaml};

pub use flagperf_core::suggestion::{list_known, list_names, nearest};
