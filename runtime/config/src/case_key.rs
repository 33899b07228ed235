//! The key of a case in `CASES`: `<case>:<framework>[_<version>][:<hosts>x<devices>]`, or for a training FlagPerf's
//! `<case>:<framework>[_<version>]:<hardware>:<nnodes>:<nproc>:<repeat>`.

use std::fmt;
use std::str::FromStr;

use super::{Finding, SettingsFile};

/// A case and its framework.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CaseKey {
    /// The case: `resnet50`.
    pub case: String,
    /// The framework as written: `interpreter`, `pytorch_1.13`.
    pub framework: String,
    /// The number of hosts and devices that run it.
    pub scale: Scale,
    /// What only the key of a training states; `None` for inference.
    pub training: Option<TrainingKey>,
}

/// What the key of a training states beside its scale.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TrainingKey {
    /// The hardware, whose section of the vendor's overlay applies: `A100`.
    pub hardware: String,
    /// How often the case is trained.
    pub repeat: u32,
}

impl TrainingKey {
    /// Returns whether a device may be the hardware: its name contains that of the hardware, whatever the case of letters and
    /// the separators, as `NVIDIA A100-SXM4-80GB` contains `A100`.
    pub fn is_name_in(&self, device: &str) -> bool {
        let plain =
            |name: &str| name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect::<String>();
        plain(device).contains(&plain(&self.hardware))
    }
}

/// How many hosts run a case, and how many devices of each: FlagPerf's `1x1`, `1x8` and `2x8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scale {
    /// Number of hosts, the first ones of `HOSTS`.
    pub hosts: u32,
    /// Number of devices of each host, the first ones that are visible.
    pub devices: u32,
}

impl Scale {
    /// One device of one host.
    pub const ONE: Scale = Scale { hosts: 1, devices: 1 };
    /// Largest number of hosts and of devices of a host.
    pub const MAX: u32 = 1024;
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.hosts, self.devices)
    }
}

impl FromStr for Scale {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let number = |text: &str| text.parse().ok().filter(|number| (1..=Scale::MAX).contains(number)).ok_or(());
        let (hosts, devices) = text.split_once('x').ok_or(())?;
        Ok(Scale { hosts: number(hosts)?, devices: number(devices)? })
    }
}

impl CaseKey {
    /// Returns the size of a training, as a section of an overlay names it: `A100x1x8`.
    pub fn size(&self) -> Option<String> {
        self.training.as_ref().map(|training| format!("{}x{}", training.hardware, self.scale))
    }

    /// Creates the key of a case for inference on one device.
    pub fn new(case: &str, framework: &str) -> Self {
        CaseKey { case: case.to_owned(), framework: framework.to_owned(), scale: Scale::ONE, training: None }
    }

    /// Returns the file from which the case is configured.
    pub const fn settings_file(&self) -> &'static SettingsFile {
        if self.training.is_some() { &SettingsFile::TRAINING } else { &SettingsFile::INFERENCE }
    }

    /// Returns the framework without its version: `pytorch` for `pytorch_1.13`.
    pub fn framework_name(&self) -> &str {
        match self.framework.rsplit_once('_') {
            Some((name, version)) if version.starts_with(|c: char| c.is_ascii_digit()) => name,
            _ => &self.framework,
        }
    }

    /// Returns the name of the case's folder in a run, such as `resnet50_interpreter`, `resnet50_interpreter_2x8` or, for a
    /// training, `resnet50_interpreter_A100_1x1`.
    pub fn folder(&self) -> String {
        let scale = match &self.training {
            Some(TrainingKey { hardware, .. }) => format!("_{hardware}_{}", self.scale),
            None if self.scale == Scale::ONE => String::new(),
            None => format!("_{}", self.scale),
        };
        format!("{}_{}{scale}", self.case, self.framework)
    }
}

impl fmt::Display for CaseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.case, self.framework)?;
        let Scale { hosts, devices } = self.scale;
        match &self.training {
            Some(TrainingKey { hardware, repeat }) => write!(f, ":{hardware}:{hosts}:{devices}:{repeat}"),
            None if self.scale == Scale::ONE => Ok(()),
            None => write!(f, ":{}", self.scale),
        }
    }
}

impl FromStr for CaseKey {
    type Err = Finding;

    fn from_str(text: &str) -> Result<Self, Finding> {
        let parts: Vec<&str> = text.split(':').collect();
        if let [case, framework, rest @ ..] = &parts[..]
            && rest.len() > 1
            && !is_scale(rest[0])
        {
            return parse_training(case, framework, rest).map_err(|reason| {
                Finding::unplaced(format!("`{text}` is not the key of a training (`{TRAINING_FORM}`): {reason}"))
            });
        }
        let refused = |reason: String| {
            let form = "is not a case key (`<case>:<framework>[_<version>][:<hosts>x<devices>]`)";
            let separator = if reason.is_empty() { "" } else { ": " };
            Finding::unplaced(format!("`{text}` {form}{separator}{reason}"))
        };
        let (case, rest) = text.split_once(':').ok_or_else(|| refused(String::new()))?;
        let (framework, scale) = match rest.split_once(':') {
            Some((framework, scale)) => (framework, scale.parse().map_err(|()| refused(scale_fault(scale)))?),
            None if is_scale(rest) => {
                return Err(refused(format!("the framework is missing before `{rest}`: `{case}:FRAMEWORK:{rest}`")));
            }
            None => (rest, Scale::ONE),
        };
        match is_name(case) && is_name(framework) {
            true => Ok(CaseKey { scale, ..CaseKey::new(case, framework) }),
            false => Err(refused(String::new())),
        }
    }
}

const TRAINING_FORM: &str = "<case>:<framework>[_<version>]:<hardware>:<nnodes>:<nproc>:<repeat>";

/// Reads the parts of a training's key; `rest` are those after the framework.
fn parse_training(case: &str, framework: &str, rest: &[&str]) -> Result<CaseKey, String> {
    let &[hardware, nnodes, nproc, repeat] = rest else {
        let count = rest.len() + 2;
        return Err(format!("it has {count} parts, not 6"));
    };
    for (part, name) in [("case", case), ("framework", framework), ("hardware", hardware)] {
        if !is_name(name) {
            return Err(format!("`<{part}>` must be a name, not `{name}`"));
        }
    }
    let number = |part: &str, text: &str, max: u32| {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
        let number = text.parse().ok().filter(|number| is_plain && (1..=max).contains(number));
        number.ok_or_else(|| format!("`<{part}>` must be a whole number from 1 to {max}, not `{text}`"))
    };
    let scale = Scale { hosts: number("nnodes", nnodes, Scale::MAX)?, devices: number("nproc", nproc, Scale::MAX)? };
    let training = Some(TrainingKey { hardware: hardware.to_owned(), repeat: number("repeat", repeat, u32::MAX)? });
    Ok(CaseKey { scale, training, ..CaseKey::new(case, framework) })
}

/// Returns whether `text` looks like numbers of hosts and devices: `2x1`.
fn is_scale(text: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.split_once('x').is_some_and(|(hosts, devices)| is_number(hosts) && is_number(devices))
}

/// Returns what is wrong with the last part of a case key.
fn scale_fault(text: &str) -> String {
    match is_scale(text) {
        true => format!("the numbers of hosts and devices must be from 1 to {}, not `{text}`", Scale::MAX),
        false => format!("`{text}` is not a number of hosts and a number of devices of each, such as `2x8`"),
    }
}

/// Returns whether `text` is a valid folder name without path separators or `..`.
pub(super) fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphanumeric())
        && text.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_key_is_a_case_and_a_framework_with_or_without_a_version() {
        let key: CaseKey = "resnet50:pytorch_1.13".parse().unwrap();
        assert_eq!((key.case.as_str(), key.framework.as_str()), ("resnet50", "pytorch_1.13"));
        assert_eq!(key.framework_name(), "pytorch");
        assert_eq!("bert:my_framework".parse::<CaseKey>().unwrap().framework_name(), "my_framework");
        assert_eq!(key.folder(), "resnet50_pytorch_1.13");
        assert_eq!(key.to_string(), "resnet50:pytorch_1.13");
        let key: CaseKey = "resnet50:pytorch:2x8".parse().unwrap();
        assert_eq!((key.scale, key.folder().as_str()), (Scale { hosts: 2, devices: 8 }, "resnet50_pytorch_2x8"));
        assert_eq!(key.to_string(), "resnet50:pytorch:2x8");
        assert_eq!("resnet50:pytorch:1x1".parse::<CaseKey>().unwrap().to_string(), "resnet50:pytorch");
    }

    #[test]
    fn the_key_of_a_training_is_that_of_flagperf() {
        let key: CaseKey = "resnet50:pytorch_1.13:A100:2:8:3".parse().unwrap();
        assert_eq!((key.framework_name(), key.scale), ("pytorch", Scale { hosts: 2, devices: 8 }));
        assert_eq!(key.training, Some(TrainingKey { hardware: "A100".to_owned(), repeat: 3 }));
        assert_eq!(key.to_string(), "resnet50:pytorch_1.13:A100:2:8:3");
        assert_eq!(key.folder(), "resnet50_pytorch_1.13_A100_2x8");
        let one: CaseKey = "digits:interpreter:cpu:1:1:1".parse().unwrap();
        assert_eq!((one.to_string().as_str(), one.scale), ("digits:interpreter:cpu:1:1:1", Scale::ONE));
        assert_eq!(one.folder(), "digits_interpreter_cpu_1x1");
        let hardware = |name: &str| TrainingKey { hardware: name.to_owned(), repeat: 1 };
        assert!(hardware("A100_80GB").is_name_in("cuda:0 NVIDIA A100 80GB PCIe") && hardware("CPU").is_name_in("cpu"));
        assert!(!hardware("A100").is_name_in("cuda:0 NVIDIA H100 80GB HBM3"));
    }

    #[test]
    fn the_wrong_part_of_a_trainings_key_is_named() {
        for (text, reason) in [
            ("a:b:c:1", "it has 4 parts, not 6"),
            ("a:b:c:1:1", "it has 5 parts, not 6"),
            ("a:b:c:1:1:1:x", "it has 7 parts, not 6"),
            ("a::c:1:1:1", "`<framework>` must be a name, not ``"),
            ("a:b:..:1:1:1", "`<hardware>` must be a name, not `..`"),
            ("a:b:c:0:1:1", "`<nnodes>` must be a whole number from 1 to 1024, not `0`"),
            ("a:b:c:01:1:1", "`<nnodes>` must be a whole number from 1 to 1024, not `01`"),
            ("a:b:c:+1:1:1", "`<nnodes>` must be a whole number from 1 to 1024, not `+1`"),
            ("a:b:c:1:x:1", "`<nproc>` must be a whole number from 1 to 1024, not `x`"),
            ("a:b:c:1:1:-1", "`<repeat>` must be a whole number from 1 to 4294967295, not `-1`"),
        ] {
            let message = text.parse::<CaseKey>().unwrap_err().to_string();
            let form = "<case>:<framework>[_<version>]:<hardware>:<nnodes>:<nproc>:<repeat>";
            assert_eq!(message, format!("`{text}` is not the key of a training (`{form}`): {reason}"));
        }
    }

    #[test]
    fn anything_else_is_refused() {
        let form = "is not a case key (`<case>:<framework>[_<version>][:<hosts>x<devices>]`)";
        let limits = "the numbers of hosts and devices must be from 1 to 1024, not";
        for (text, reason) in [
            ("resnet50", String::new()),
            ("resnet50:", String::new()),
            (":interpreter", String::new()),
            ("../x:interpreter", String::new()),
            ("a/b:c", String::new()),
            ("a:b:c", ": `c` is not a number of hosts and a number of devices of each, such as `2x8`".to_owned()),
            ("a:b:2x", ": `2x` is not a number of hosts and a number of devices of each, such as `2x8`".to_owned()),
            ("a:b:0x1", format!(": {limits} `0x1`")),
            ("a:b:1x0", format!(": {limits} `1x0`")),
            ("a:b:1x2000", format!(": {limits} `1x2000`")),
            (
                "a:b:2x8:1",
                ": `2x8:1` is not a number of hosts and a number of devices of each, such as `2x8`".to_owned(),
            ),
            ("tiny:2x1", ": the framework is missing before `2x1`: `tiny:FRAMEWORK:2x1`".to_owned()),
        ] {
            let message = text.parse::<CaseKey>().unwrap_err().to_string();
            assert_eq!(message, format!("`{text}` {form}{reason}"));
        }
    }
}
