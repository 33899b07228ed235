//! The variable that selects the devices visible to a process, and its value in the workers of a run.

use super::{Origin, Site, Values, Vendor, env};

/// Value for the only process of a run: the first device.
const FIRST: &str = "0";

/// The variable that selects the devices visible to a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VisibleDevices {
    /// Name of the variable: `ACCE_VISIBLE_DEVICE_ENV_NAME` of host.yaml, or else `visible_devices` of vendor.yaml.
    pub variable: String,
    /// Its value in this process's environment; `None` when it is not set.
    pub inherited: Option<String>,
    /// Origin of the name.
    pub origin: Origin,
    /// Whether host.yaml names it. If so, a worker sees the first device unless the environment sets the variable.
    pub is_named_by_site: bool,
    /// Index of the worker's device among those that this process may use; `None` when the worker is not restricted to one
    /// of several.
    pub device: Option<u32>,
}

impl VisibleDevices {
    /// Returns the variable that the site names, or else the one that the vendor names.
    pub(super) fn resolve(site: &Site, values: &Values, vendor: Option<&Vendor>, device: Option<u32>) -> Option<Self> {
        let of_site = site.acce_visible_device_env_name.clone();
        let (variable, origin, is_named_by_site) = match (of_site, vendor) {
            (Some(variable), _) => (variable, values["ACCE_VISIBLE_DEVICE_ENV_NAME"].origin.clone(), true),
            (None, Some(vendor)) => (vendor.visible_devices.clone()?, vendor.origin(&["visible_devices"]), false),
            (None, None) => return None,
        };
        let inherited = env::visible_devices_value(&variable);
        Some(VisibleDevices { inherited, variable, origin, is_named_by_site, device })
    }

    /// Returns the name and value of the variable for a worker, which inherits no other one; `None` when it has no value.
    pub fn worker_variable(&self) -> Option<(String, String)> {
        let value = match (self.device, &self.inherited) {
            (Some(device), Some(list)) => list.split(',').nth(device as usize).unwrap_or_default().trim().to_owned(),
            (Some(device), None) => device.to_string(),
            (None, Some(value)) => value.clone(),
            (None, None) if self.is_named_by_site => FIRST.to_owned(),
            (None, None) => return None,
        };
        Some((self.variable.clone(), value))
    }

    /// Returns the name of the variable and its value for a process that chooses one of this many devices of the host itself.
    pub fn variable_of_host(&self, devices: u32) -> (String, String) {
        let list = match &self.inherited {
            Some(list) => list.split(',').map(|device| device.trim().to_owned()).take(devices as usize).collect(),
            None => (0..devices).map(|device| device.to_string()).collect::<Vec<_>>(),
        };
        (self.variable.clone(), list.join(","))
    }

    /// Describes the devices visible to a worker, for listings: `CUDA_VISIBLE_DEVICES=0`.
    pub fn display(&self) -> String {
        match self.worker_variable() {
            Some((variable, value)) => format!("{variable}={value}"),
            None => format!("{} is not set", self.variable),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Overrides;
    use super::super::fixture::{Checkout, HOST};
    use super::*;
    use flagperf_core::event::Level;

    #[test]
    fn a_process_that_chooses_a_device_itself_sees_those_of_the_case() {
        let visible = |inherited: Option<&str>| VisibleDevices {
            variable: "CHIPS".to_owned(),
            inherited: inherited.map(str::to_owned),
            origin: Origin::Default,
            is_named_by_site: true,
            device: Some(1),
        };
        let pair = |value: &str| ("CHIPS".to_owned(), value.to_owned());
        assert_eq!(visible(None).variable_of_host(2), pair("0,1"));
        assert_eq!(visible(Some("4, 5,6")).variable_of_host(2), pair("4,5"));
    }

    #[test]
    fn a_worker_gets_the_variable_of_visible_devices_when_host_yaml_names_it() {
        let visible = |host: &str, vendor: &str| {
            let checkout = Checkout::new().with("configs/host.yaml", &format!("{HOST}{host}"));
            let chip = std::fs::read_to_string(checkout.path("vendors/chip/vendor.yaml")).unwrap();
            let checkout = checkout.with("vendors/chip/vendor.yaml", &format!("{chip}{vendor}"));
            let visible = checkout.load(&Overrides::default()).unwrap().visible;
            visible.map(|visible| (visible.display(), visible.worker_variable().is_some(), visible.origin.to_string()))
        };
        let row = |display: &str, given: bool, origin: &str| Some((display.to_owned(), given, origin.to_owned()));
        let of_site = "ACCE_VISIBLE_DEVICE_ENV_NAME: FLAGPERF_TEST_DEVICES\n";
        let of_vendor = "visible_devices: FLAGPERF_TEST_CHIPS\n";
        assert_eq!(visible("", ""), None);
        assert_eq!(
            visible("", of_vendor),
            row("FLAGPERF_TEST_CHIPS is not set", false, "vendors/chip/vendor.yaml:11"),
            "every device stays visible"
        );
        assert_eq!(visible(of_site, of_vendor), row("FLAGPERF_TEST_DEVICES=0", true, "configs/host.yaml:4"));
        let path = env::visible_devices_value("PATH").unwrap();
        let inherited = visible("ACCE_VISIBLE_DEVICE_ENV_NAME: PATH\n", "").unwrap();
        assert_eq!(inherited, (format!("PATH={path}"), true, "configs/host.yaml:4".to_owned()), "the environment wins");
        let refused = Checkout::new().with("configs/host.yaml", &format!("{HOST}ACCE_VISIBLE_DEVICE_ENV_NAME: A=B\n"));
        assert_eq!(
            refused.messages(Level::Error, &Overrides::default()),
            ["configs/host.yaml:4: `ACCE_VISIBLE_DEVICE_ENV_NAME` must be the name of an environment variable, \
                 or null, not `A=B`"]
        );
    }
}
