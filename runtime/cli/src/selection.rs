//! The arguments that select cases and override their configuration, and those that an agent adds on another host. Knows no
//! command.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use flagperf_config::{Environment, Overrides, Replica};

/// The cases to run and the values that override their configuration.
#[derive(Debug, Default, Args)]
pub(super) struct Selection {
    /// Case to run, as NAME, NAME:FRAMEWORK or NAME:FRAMEWORK:HOSTSxDEVICES, such as `resnet50:pytorch:2x8` for two hosts
    /// and eight devices of each; to train it, NAME:FRAMEWORK:HARDWARE:HOSTS:DEVICES:REPEAT, such as
    /// `digits:interpreter:cpu:1:1:1`; repeatable [default: every case in host.yaml]
    #[arg(long, value_name = "NAME[:FRAMEWORK[:HOSTSxDEVICES]]", value_hint = ValueHint::Other)]
    case: Vec<String>,
    /// The vendor whose device is measured: a folder in vendors/
    #[arg(long, value_name = "VENDOR", value_hint = ValueHint::Other)]
    vendor: Option<String>,
    /// The folder with datasets and weights
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    data: Option<PathBuf>,
    /// Directory that contains host.yaml (also FLAGPERF_CONFIG)
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    config: Option<PathBuf>,
    /// Change a setting for this run, such as `batch_size=4`, or an engine's option, such as `rten.threads=1`; the
    /// record marks it as a departure from the standard case
    #[arg(long, value_name = "KEY=VALUE", value_hint = ValueHint::Other)]
    set: Vec<String>,
}

impl Selection {
    /// Returns whether the command line or the environment says which cases to use: by `--case`, or by a host.yaml.
    pub(super) fn names_cases(&self) -> bool {
        !self.case.is_empty() || self.config.is_some() || Environment::read().config.is_some()
    }

    pub(super) fn overrides(&self) -> Overrides {
        Overrides {
            config: self.config.clone(),
            vendor: self.vendor.clone(),
            cases: self.case.clone(),
            data: self.data.clone(),
            set: self.set.clone(),
            environment: Environment::read(),
            replica: None,
            process_group: None,
            host_file_name: None,
            is_copy: false,
        }
    }
}

/// What an agent adds to a command that it runs on its host.
#[derive(Debug, Args)]
pub(super) struct AgentArguments {
    /// Check this machine as the host with this name in HOSTS
    #[arg(long, hide = true, value_name = "HOST")]
    as_host: Option<String>,
    /// Name of host.yaml in messages
    #[arg(long, hide = true, value_name = "NAME")]
    host_file_name: Option<String>,
}

impl AgentArguments {
    /// Returns the overrides of a command on the agent's host.
    pub(super) fn apply(&self, overrides: Overrides) -> Overrides {
        let replica = self.as_host.as_ref().map(|host| Replica { host: host.clone(), ..Replica::default() });
        Overrides { replica, host_file_name: self.host_file_name.clone(), ..overrides }
    }
}
